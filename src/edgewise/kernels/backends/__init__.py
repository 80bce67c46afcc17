"""The backends, one line each; of equally fast ones the planner takes the first."""

from edgewise.kernels.backend import Backend
from edgewise.kernels.backends.cpu import native, tiled
from edgewise.kernels.backends.cuda import bitmap, flex, ragged, selfcheck, triton
from edgewise.kernels.backends.torch import dense, factored, reference, segment

BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        dense.BACKEND,
        factored.BACKEND,
        flex.BACKEND,
        native.BACKEND,
        ragged.BACKEND,
        segment.BACKEND,
        tiled.BACKEND,
        bitmap.BACKEND,
        triton.BACKEND,
        reference.BACKEND,
    )
}

selfcheck.CHECKED.update({backend.name: backend for backend in (ragged.BACKEND, bitmap.BACKEND, triton.BACKEND)})
