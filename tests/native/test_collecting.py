"""Runs of rows of chosen graphs, by the compiled functions themselves."""

import pytest
import torch

from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="the native kernels were not built")


def test_runs_lie_one_after_the_other() -> None:
    graphs, bounds = torch.tensor([3, 0, 3]), torch.tensor([0, 2, 2, 3, 6])
    chosen = library.Chosen(3, graphs.data_ptr(), bounds.data_ptr())
    starts = torch.empty(4, dtype=torch.int64)
    assert library.run_starts(chosen, starts.data_ptr()) == 8
    assert starts.tolist() == [0, 3, 5, 8]
    numbers = torch.empty(8, dtype=torch.int64)
    library.number_runs(chosen, numbers.data_ptr())
    assert numbers.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("columns", [0, 1, 3])
def test_rows_of_slabs_are_copied_and_numbers_shifted(dtype: torch.dtype, columns: int) -> None:
    graphs, bounds = torch.tensor([1, 0]), torch.tensor([0, 2, 5])
    chosen, places = library.Chosen(2, graphs.data_ptr(), bounds.data_ptr()), torch.tensor([2, 3, 4, 0, 1])
    values = torch.arange(2 * 5 * 4).reshape(2, 5, 4).to(dtype)
    extent = 2, 20, 4, columns  # two slabs of five rows, four numbers apart
    out = torch.empty(2, 5, columns, dtype=dtype)
    library.copy_runs(chosen, dtype.itemsize, *extent, values.data_ptr(), out.data_ptr())
    assert torch.equal(out, values[:, places, :columns])
    if dtype != torch.uint8:
        first, to = torch.tensor([7, 9]), torch.tensor([100, 200])
        addresses = values.data_ptr(), out.data_ptr(), first.data_ptr(), to.data_ptr()
        library.renumber_runs(chosen, dtype.itemsize, *extent, *addresses)
        shift = torch.tensor([100 - 9] * 3 + [200 - 7] * 2)[:, None]
        assert torch.equal(out, (values[:, places, :columns] + shift).to(dtype))
