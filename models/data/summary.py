"""A data set in a few lines for a person."""

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.data.rows import dense_bytes, stored_bytes
from hetsgd.models.data.source_file import size_words

_LISTED = 10
_RARE = 0.05
"""A class below this share, and below a quarter of an even one, is pointed out: a mean loss hardly sees it."""


def summarise(data: Dataset) -> str:
    """Rows, features, density, classes with their shares, and where the data come from."""
    size = stored_bytes(data.train_x) + stored_bytes(data.test_x)
    kept = f"dense {data.train_x.dtype}, {size_words(size)}"
    if data.sparse:
        dense = dense_bytes(data.train_x) + dense_bytes(data.test_x)
        kept = f"CSR {data.train_x.dtype}, {size_words(size)} ({size_words(dense)} if dense)"
    return "\n".join(
        [
            f"{data.name}: {data.rows:,} rows for training, {data.test_rows:,} for testing",
            f"features: {data.features:,}, {_share(data.density)} of the values not zero; {kept}",
            _labels(data) if data.multilabel else _classes(data),
            f"source: {data.source}",
        ]
    )


def _classes(data: Dataset) -> str:
    shares = list(zip(_names(data), data.class_balance, strict=True))
    if len(shares) <= _LISTED:
        parts = ", ".join(f"{name}: {_share(share)}" for name, share in shares)
    else:
        ranked = sorted(shares, key=lambda item: -item[1])
        parts = f"from {ranked[-1][0]}: {_share(ranked[-1][1])} to {ranked[0][0]}: {_share(ranked[0][1])}"
    absent = [name for name, share in shares if not share]
    rare = sum(0 < share < min(_RARE, 0.25 / len(shares)) for _, share in shares)
    notes = [f"{len(absent)} without a training row ({', '.join(absent[:5])})"] if absent else []
    notes += [f"{rare} rare"] if rare else []
    return f"classes: {len(shares)}; {parts}" + "".join(f"; {note}" for note in notes)


def _labels(data: Dataset) -> str:
    shares = sorted(zip(_names(data), data.class_balance, strict=True), key=lambda item: -item[1])
    per_row = sum(share for _, share in shares)
    absent = sum(not share for _, share in shares)
    text = (
        f"labels: {len(shares)}, {per_row:.2f} a row on average; most often {shares[0][0]}: {_share(shares[0][1])}, "
        f"least {shares[-1][0]}: {_share(shares[-1][1])}"
    )
    return text + (f"; {absent} without a training row" if absent else "")


def _names(data: Dataset) -> tuple[str, ...]:
    return data.label_names or tuple(str(number) for number in range(data.classes))


def _share(share: float) -> str:
    """A share as a percentage of three digits, never 0 or 100 for what is not.

    >>> _share(0.51234), _share(0.00012), _share(0.99999), _share(1.0)
    ('51.2 %', '0.012 %', '> 99.9 %', '100 %')
    """
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"
