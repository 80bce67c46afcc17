"""Every reader takes the fuzzer's corpus: its seeds, and each input that once broke it."""

from contextlib import suppress

import pytest

from edgewise.errors import EdgewiseError
from fuzz.harnesses import HARNESSES, corpus


@pytest.mark.parametrize("name", HARNESSES)
def test_a_reader_takes_its_corpus_and_every_prefix_of_a_seed_and_each_byte_changed(name: str) -> None:
    first, *others = corpus(name)
    HARNESSES[name](first)  # reaches the end of its reader
    steps = range(0, len(first), -(-len(first) // 12))
    changed = [first[:place] + b"\xff\x00" + first[place + 2 :] for place in steps]
    for content in [*others, *changed, *(first[:place] for place in steps)]:
        with suppress(EdgewiseError):
            HARNESSES[name](content)
