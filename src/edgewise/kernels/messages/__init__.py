"""Messages: what travels along an edge, as data that a kernel can read and refuse.

A message is a tensor [*, E, C], or one of the records here. A record's method `on_edges` is its equation in plain
PyTorch; backends that know the record do better than calling it.
"""

from edgewise.kernels.messages.network import Activation as Activation
from edgewise.kernels.messages.network import EdgeInput as EdgeInput
from edgewise.kernels.messages.network import EdgeNetwork as EdgeNetwork
from edgewise.kernels.messages.network import EdgeReadout as EdgeReadout
from edgewise.kernels.messages.network import Map as Map
from edgewise.kernels.messages.network import Message as Message
from edgewise.kernels.messages.network import Network as Network
from edgewise.kernels.messages.network import gaussians as gaussians
from edgewise.kernels.messages.network import has_hooks as has_hooks
from edgewise.kernels.messages.network import maps_of as maps_of
from edgewise.kernels.messages.network import shifted_softplus as shifted_softplus
from edgewise.kernels.messages.weighted import Filter as Filter
from edgewise.kernels.messages.weighted import TensorProduct as TensorProduct
from edgewise.kernels.messages.weighted import Weighted as Weighted
from edgewise.kernels.messages.weighted import edges_as_senders as edges_as_senders
