"""Batches come out of dense and CSR matrices alike, without a copy of the rest."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hetsgd.models.data.rows import dense_bytes, gather, is_sparse, nonzeros, stored_bytes, take

matrices = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
    elements=st.sampled_from([0.0, 0.0, 0.0, 1.5, -2.0]),
)


@given(matrices, st.data(), st.sampled_from([np.float32, np.float64]))
def test_gathering_from_either_kind_equals_indexing_the_dense_matrix(
    x: NDArray[Any], data: st.DataObject, kind: type[Any]
) -> None:
    count = len(x)
    rows: Any = data.draw(
        st.one_of(
            st.slices(count),
            st.lists(st.integers(0, count - 1), max_size=12).map(lambda picked: np.array(picked, dtype=np.int64)),
        )
    )
    expected = x[rows]
    out = np.full((len(expected) + 2, x.shape[1]), 7, dtype=kind)
    for matrix in (x, csr_array(x)):
        into = gather(matrix, rows, out)
        np.testing.assert_array_equal(into, expected)
        assert np.shares_memory(into, out) or not into.size
        assert (out[len(expected) :] == 7).all()
        taken = take(matrix, rows)
        np.testing.assert_array_equal(taken.toarray() if is_sparse(taken) else taken, expected)


def test_sizes_of_both_kinds() -> None:
    x = np.zeros((100, 50), np.float32)
    x[3, 4] = 2
    sparse = csr_array(x)
    assert dense_bytes(x) == dense_bytes(sparse) == stored_bytes(x) == 20_000
    assert stored_bytes(sparse) < 1_000
    assert nonzeros(x) == nonzeros(sparse) == 1
    assert (is_sparse(x), is_sparse(sparse)) == (False, True)


@pytest.mark.parametrize("make", [np.asarray, csr_array])
def test_rows_outside_and_buffers_that_do_not_fit_are_refused(make: Any) -> None:
    x = make(np.eye(3, 2, dtype=np.float32))
    out = np.empty((3, 2), np.float32)
    with pytest.raises(IndexError, match=r"rows must lie in 0\.\.2, got 0\.\.3"):
        gather(x, np.array([0, 3]), out)
    with pytest.raises(IndexError, match=r"rows must lie in 0\.\.2, got -1\.\.0"):
        take(x, np.array([0, -1]))
    with pytest.raises(ValueError, match=r"at least 4 rows x 2 features, got shape \(3, 2\)"):
        gather(x, np.array([0, 1, 2, 0]), out)
    with pytest.raises(ValueError, match="C-contiguous"):
        gather(x, slice(0, 2), np.empty((2, 2), np.float32, order="F"))
