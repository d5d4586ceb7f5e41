"""Label columns are chosen by name, count or XML file, or the choice is refused."""

from pathlib import Path
from typing import Any

import pytest

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice, choose_labels, xml_labels

COLUMNS = ["a", "b", "c", r"m\'usica"]


@pytest.mark.parametrize(
    ("label", "multilabel", "places", "several"),
    [
        ("b", None, (1,), False),
        ("c, a", True, (2, 0), True),
        (["c", "a"], True, (2, 0), True),
        ("last 2", None, (2, 3), True),
        ("First 3", None, (0, 1, 2), True),
        ("last 1", None, (3,), False),
        ("last 1", True, (3,), True),
        ("m'usica", None, (3,), False),
    ],
)
def test_each_way_of_choosing(label: Any, multilabel: bool | None, places: tuple[int, ...], several: bool) -> None:
    choice = choose_labels(label, multilabel=multilabel, origin="f")
    assert (choice.places(COLUMNS, "f"), choice.several) == (places, several)


@pytest.mark.parametrize(
    ("label", "multilabel", "message"),
    [
        ("d", None, "f: label column 'd' is not there, the columns are a, b, c"),
        ("a,a", True, "f: label columns must differ, got a, a"),
        ("last 4", None, r"f: at least one column must be a feature, all are labels \(4 labels, 4 columns\)"),
        ("first 900", None, r"at least one column must be a feature, all are labels \(900 labels"),
        ("last 0", None, "f: label must count at least one column"),
        ("last 2", False, "f: label must count at least one column, or exactly one where multilabel is False"),
        (["a", "b"], None, "f: label must be one column, got a, b"),
    ],
)
def test_choices_that_cannot_hold(label: Any, multilabel: bool | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose_labels(label, multilabel=multilabel, origin="f").places(COLUMNS, "f")


def test_a_mulan_xml_file_names_the_labels(tmp_path: Path) -> None:
    (tmp_path / "set.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n'
        '<label name="b"><label name="a"></label></label><label name="m\\\'usica"/></labels>',
        encoding="utf-8",
    )
    choice = choose_labels("set.xml", multilabel=None, origin="f", folder=tmp_path)
    assert choice == LabelChoice(names=("b", "a", r"m\'usica"), several=True)
    assert choice.places(COLUMNS, "f") == (1, 0, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<labels>", "must be XML"),
        ("<labels/>", "must list labels"),
        ('<labels><label name=""/></labels>', "must list labels"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><labels><label name="&b;"/></labels>', "must be a plain list of labels"),
        ("\0\1\2", "must be XML"),
    ],
)
def test_other_xml_is_refused_by_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "set.xml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"set.xml: {message}"):
        xml_labels(path)


def test_a_misspelt_label_column_is_told_the_nearest() -> None:
    choice = LabelChoice(names=("clas",))
    with pytest.raises(DataError, match=r"label column 'clas' is not there \(did you mean 'class'\?\), the columns"):
        choice.places(["x", "class"], "f, line 1")
