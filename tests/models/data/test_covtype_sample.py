"""The embedded sample is a tenth of covtype, class by class, unchanged."""

import io
from importlib import resources
from pathlib import Path

import numpy as np

from hetsgd.models.data.covtype_sample import read_sample, read_table
from hetsgd.models.data.delimited import parse_delimited
from hetsgd.models.data.make_covtype_sample import sample_bytes
from hetsgd.models.data.source_file import read_bytes
from hetsgd.models.data.table import Table

PUBLISHED = np.array([211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510])


def test_each_cover_type_keeps_its_share_within_one_row() -> None:
    counts = np.bincount(read_sample().y)
    assert counts.sum() == 58_101
    assert (np.abs(counts - PUBLISHED / 10) <= 1).all()


def test_the_features_are_the_original_integers() -> None:
    x = read_sample().x
    assert isinstance(x, np.ndarray)
    assert x.shape == (58_101, 54)
    assert x.dtype == np.int16
    assert (x[:, 10:14].sum(axis=1) == 1).all()
    assert (x[:, 14:].sum(axis=1) == 1).all()
    assert 1_800 < x[:, 0].min() < x[:, 0].max() < 3_900  # elevation in metres


def test_the_notice_is_kept_beside_it_with_the_true_counts() -> None:
    folder = resources.files("hetsgd.models.data")
    notice = folder.joinpath("covtype_sample.NOTICE.txt").read_text(encoding="utf-8")
    assert "Blackard and Colorado State University" in notice
    assert "unlimited with retention of this copyright notice" in notice
    for count in (*np.bincount(read_sample().y), *PUBLISHED):
        assert f"{count:,}" in notice
    assert len(folder.joinpath("covtype_sample.npz").read_bytes()) < 1_500_000


def test_the_same_source_gives_the_same_bytes() -> None:
    sample = read_sample()
    table = Table(x=np.asarray(sample.x)[::20], y=sample.y[::20], label_names=sample.label_names)
    first, second = sample_bytes(table), sample_bytes(table)
    assert first == second
    again = read_table(io.BytesIO(first))
    assert abs(again.rows - table.rows / 10) <= 1


def test_the_full_set_gives_this_very_sample(full_sets: Path) -> None:
    source = full_sets / "covtype" / "covtype.csv.xz"
    full = parse_delimited(read_bytes(source), origin=str(source))
    assert np.bincount(full.y).tolist() == PUBLISHED.tolist()
    made, kept = read_table(io.BytesIO(sample_bytes(full))), read_sample()
    np.testing.assert_array_equal(made.x, kept.x)
    np.testing.assert_array_equal(made.y, kept.y)
