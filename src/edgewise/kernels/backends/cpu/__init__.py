"""Backends in C++, for the CPU."""

from edgewise import native as compiled
from edgewise.kernels.backend import Need

KERNELS = Need(lambda: compiled.library is not None, compiled.WHY_NOT)
