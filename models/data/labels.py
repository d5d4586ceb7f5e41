"""Which columns of a table are labels: named ones, those that an XML file lists, or the first or last few."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from xml.etree import ElementTree

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.source_file import bare_suffix, read_bytes
from hetsgd.models.data.targets import listed

_COUNTED = re.compile(r"(first|last)\s+([0-9]{1,9})", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(['\"\\%])")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChoice:
    """The label columns: `names`, or the `first` or `last` so many; none of them: what the format has by default.

    `several` says that a row may carry several labels, each column being 0 or 1.
    """

    names: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    several: bool = False

    @property
    def given(self) -> bool:
        """Whether any columns were asked for."""
        return bool(self.names or self.first or self.last)

    def places(self, columns: Sequence[str], where: str) -> tuple[int, ...]:
        """Places of the label columns among `columns`; `where` names file and line for messages.

        Raises DataError for a name that is not there or not alone, and where no column is left for features.
        """
        count = self.first or self.last
        if count:
            places = tuple(range(count)) if self.first else tuple(range(len(columns) - count, len(columns)))
        else:
            plain = [plain_name(column) for column in columns]
            places = tuple(_place(name, plain, columns, where) for name in self.names)
        if len(set(places)) != len(places):
            raise DataError(f"{where}: label columns must differ, got {listed(self.names)}")
        if count >= len(columns) or len(places) >= len(columns):
            raise DataError(
                f"{where}: at least one column must be a feature, all are labels "
                f"({max(count, len(places))} labels, {len(columns)} columns)"
            )
        return places


def plain_name(name: str) -> str:
    """A column's name without the escapes that some writers of ARFF and their XML files use."""
    return _ESCAPED.sub(r"\1", name)


def _place(name: str, plain: list[str], columns: Sequence[str], where: str) -> int:
    wanted = plain_name(name)
    if plain.count(wanted) != 1:
        found = "is there more than once" if wanted in plain else "is not there"
        close = [] if wanted in plain else get_close_matches(wanted, plain, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise DataError(f"{where}: label column {name!r} {found}{hint}, the columns are {listed(columns)}")
    return plain.index(wanted)


def choose_labels(
    label: str | Sequence[str] | LabelChoice | None, *, multilabel: bool | None, origin: str, folder: Path | None = None
) -> LabelChoice:
    """The choice that `label` states: a column's name, several names, `first 14`, `last 983`, or a Mulan XML file.

    An XML file's name ends in .xml and is taken relative to `folder`. Counts above one and XML files mean several
    labels a row unless `multilabel` is False; names do where `multilabel` is True.

    Raises DataError for a choice that cannot hold, naming `origin`.
    """
    if isinstance(label, LabelChoice):
        return label
    if label is None:
        return LabelChoice(several=bool(multilabel))
    if isinstance(label, str):
        counted = _COUNTED.fullmatch(label.strip())
        if counted:
            return _counted(counted.group(1).lower(), int(counted.group(2)), multilabel, origin)
        if folder is not None and bare_suffix(Path(label)) == ".xml":
            names = xml_labels(folder / Path(label).expanduser())
            return _named(names, multilabel is not False, origin)
    split = (label.split(",") if multilabel else [label]) if isinstance(label, str) else list(label)
    return _named(tuple(name.strip() for name in split), bool(multilabel), origin)


def _counted(end: str, count: int, multilabel: bool | None, origin: str) -> LabelChoice:
    several = count > 1 if multilabel is None else multilabel
    if count < 1 or (count > 1 and not several):
        raise DataError(f"{origin}: label must count at least one column, or exactly one where multilabel is False")
    return LabelChoice(first=count if end == "first" else 0, last=count if end == "last" else 0, several=several)


def _named(names: tuple[str, ...], several: bool, origin: str) -> LabelChoice:
    if not several and len(names) > 1:
        raise DataError(f"{origin}: label must be one column, got {listed(names)} (several: multilabel = true)")
    return LabelChoice(names=names, several=several)


def xml_labels(path: Path) -> tuple[str, ...]:
    """The label names of a Mulan XML file (`<labels><label name="..."/>...`), nested ones too, in file order.

    Raises DataError for anything else.
    """
    raw = read_bytes(path)
    if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:
        raise DataError(f"{path}: must be a plain list of labels, got a document type or entities")
    try:
        root = ElementTree.fromstring(raw)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"{path}: must be XML, got {error}") from error
    names = tuple(
        element.get("name", "").strip() for element in root.iter() if element.tag.rpartition("}")[2] == "label"
    )
    if not names or "" in names:
        raise DataError(f'{path}: must list labels as <label name="...">, got {len(names)} of them, all named')
    return names
