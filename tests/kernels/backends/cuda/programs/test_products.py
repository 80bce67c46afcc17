"""What the compiler makes of the sparse products for a card; what they compute is tested with their operators."""

import pytest

from kernels.backends.cuda.programs.apart import run


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run("products_compiled.py", tmp_path_factory.mktemp("triton"))


def test_no_kernel_spills_and_every_load_of_features_is_16_bytes_wide(report):
    for name, variants in report["resources"].items():
        assert variants
        for variant in variants:
            assert variant["STACK"] == variant["LOCAL"] == 0, name
            assert variant["REG"] <= 80, name  # six programs of four warps on a multiprocessor
    assert min(report["wide"]) >= 4, "four rows are asked for at once"


def test_other_sizes_are_no_new_kernel(report):
    assert report["again"] == report["first"]
