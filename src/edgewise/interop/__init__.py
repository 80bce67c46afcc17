"""Beside the models: other libraries' modules, loaders and calls, run on the graphs and kernels of this one."""

from edgewise.interop.converting import Conversion as Conversion
from edgewise.interop.converting import conversion as conversion
from edgewise.interop.converting import convert as convert
from edgewise.interop.converting import revert as revert
from edgewise.interop.huggingface import register_attention as register_attention
from edgewise.interop.loader import GraphLoader as GraphLoader
