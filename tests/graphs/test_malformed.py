"""Each malformed graph is a GraphError which says what was wrong and what would be right."""

from collections.abc import Callable

import pytest

from edgewise.errors import GraphError
from graphs.malformed import MALFORMED


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_a_malformed_graph_is_a_named_error(call: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
