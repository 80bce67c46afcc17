"""Prepared launches: Triton sees each signature once, and its driver gets the same arguments as from Triton."""

import pytest
import torch

from edgewise.kernels.backends.cuda.programs import INTERPRETED
from edgewise.kernels.backends.cuda.programs.dropout import dropped
from kernels.backends.cuda.programs.apart import run


def test_triton_sees_each_signature_once(tmp_path):
    found = run("launching_compiled.py", tmp_path)
    assert found == {
        "the same numbers": {"launches": 3, "by Triton": 1, "kernels": 1, "alike": True},
        "numbers of other sizes": {"launches": 4, "by Triton": 1, "kernels": 1, "alike": False},
        "other constants": {"launches": 3, "by Triton": 2, "kernels": 2, "alike": False},
        "other addresses": {"launches": 3, "by Triton": 1, "kernels": 2, "alike": False},
        "options by name": {"launches": 4, "by Triton": 2, "kernels": 2, "alike": False},
        "other dtypes": {"launches": 3, "by Triton": 2, "kernels": 2, "alike": False},
    }


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter launches as it is")
def test_the_interpreter_launches_as_it_is():
    assert not dropped.compiled
    assert type(dropped[(1,)]) is type(dropped.kernel[(1,)])
    x, y = torch.ones(3), torch.zeros(3)
    dropped[(1,)](x, y, torch.zeros((), dtype=torch.int64), 3, 0, 2.0, 1024)
    assert y.tolist() == [2.0] * 3
