"""Checks for layers and backends, yours included: what must hold for any of them, with messages that say what did not.

    from edgewise.testing import check_layer
    check_layer(MyLayer(3, 4), graph, x)

A failed check is an AssertionError whose message names the property.
"""

from edgewise.testing.kernels import check_kernel as check_kernel
from edgewise.testing.layers import PROPERTIES as PROPERTIES
from edgewise.testing.layers import assert_equivariant as assert_equivariant
from edgewise.testing.layers import check_layer as check_layer
from edgewise.testing.layers import joined as joined
