"""Every reader takes the fuzzer's corpus: its seeds, and each input that once broke it."""

from contextlib import suppress

import pytest

from edgewise.errors import EdgewiseError
from fuzz.harnesses import HARNESSES, corpus


@pytest.mark.parametrize("name", HARNESSES)
def test_a_reader_takes_its_corpus(name: str) -> None:
    contents = list(corpus(name))
    assert contents
    for content in contents:
        with suppress(EdgewiseError):
            HARNESSES[name](content)


@pytest.mark.parametrize("name", HARNESSES)
def test_the_first_seed_reaches_the_end_of_its_reader(name: str) -> None:
    HARNESSES[name](next(corpus(name)))


@pytest.mark.parametrize("name", HARNESSES)
def test_a_reader_takes_every_prefix_of_a_seed_and_each_byte_changed(name: str) -> None:
    content = next(corpus(name))
    steps = range(0, len(content), -(-len(content) // 12))
    for changed in [content[:place] + b"\xff\x00" + content[place + 2 :] for place in steps] + [
        content[:n] for n in steps
    ]:
        with suppress(EdgewiseError):
            HARNESSES[name](changed)
