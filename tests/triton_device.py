"""The device that Triton's kernels are tested on: the GPU where there is one, else the interpreter on the CPU."""

import torch
from triton.runtime import interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

_patched = set()


def _call(self, *args, **kwargs):
    """A call within a kernel, without putting the interpreter in the language's place again, which takes 10 ms."""
    if id(self.fn.__globals__) not in _patched:
        interpreter._patch_lang(self.fn)
        _patched.add(id(self.fn.__globals__))
    return self.rewrite()(*args, **kwargs)


interpreter.InterpretedFunction.__call__ = _call
