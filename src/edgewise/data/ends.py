"""Which columns of tables name nodes, and which are the ends of edges, by what they are called."""

from collections.abc import Sequence
from pathlib import Path

from edgewise.data.table import Called
from edgewise.errors import DataError

NODES = ("node", "id", "node_id", "nodeid")  # the columns that name the nodes
ENDS = (  # what the ends of an edge are called, the sender first
    ("sender", "receiver"),
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("source_id", "target_id"),
    ("from_id", "to_id"),
    ("u", "v"),
    ("node1", "node2"),
)


def ends_called(path: Path, names: Sequence[str], chosen: Sequence[str], option: str) -> list[str]:
    """The columns of a table of edges that are called senders and receivers, or those that are chosen; else none.

    Symbols     names = all columns; option = that of the command line by which they are chosen
    Errors      DataError: several pairs are called so, or those that are chosen are not there
    """
    lower = Called(path, names)
    pairs = [pair for pair in ENDS if {*pair} <= {*lower}]
    if not chosen and len(pairs) > 1:
        expected = "; ".join(" and ".join(pair) for pair in pairs)
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected one of {expected}: give {option}")
    if chosen and (len(chosen) != 2 or not {*chosen} <= {*names}):
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected {' and '.join(chosen)}")
    return list(chosen) or [lower[end] for end in (pairs[0] if pairs else ())]
