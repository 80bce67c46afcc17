"""What the compiler makes of attention by windows for a card; what it computes is tested with its backend."""

import pytest

from kernels.backends.cuda.programs.apart import run


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run("bitmap_compiled.py", tmp_path_factory.mktemp("triton"))


def test_every_product_is_on_tensor_cores_and_none_spills(report):
    assert len(report["products"]) == 9
    assert min(report["products"]) > 0
    for resources in report["resources"]:
        assert resources["STACK"] == resources["LOCAL"] == 0
    assert sum(n > 0 for n in report["copies"]) >= 6, "rows travel to shared memory 16 bytes at a time, ahead of use"


def test_other_sizes_are_no_new_kernel(report):
    assert report["again"] == report["first"]
