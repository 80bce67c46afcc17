"""A plugin of pytest's that passes each layer through `convert` as it is made, for PyTorch Geometric's own tests:

cd pytorch_geometric && PYTHONPATH=<this repository>/tests python -m pytest -p interop.geometric.converted test/nn/conv
"""

import warnings
from functools import wraps
from typing import Any

import torch
import torch_geometric.nn

from edgewise import convert
from edgewise.interop.converting import TWINS


def _converting(kind: Any) -> Any:
    theirs = kind.__init__

    @wraps(theirs)
    def made(self: Any, *args: Any, **named: Any) -> None:
        theirs(self, *args, **named)
        if type(self) is kind:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                convert(self)

    return made


for library, name in TWINS:
    kind = getattr(torch.nn if library == "torch" else torch_geometric.nn, name)
    kind.__init__ = _converting(kind)
