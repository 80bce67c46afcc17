"""A run's report: a self-contained page with its figures."""

import os
from contextlib import suppress
from pathlib import Path

from edgewise.files import cache_path, can_be_made


def keep_fonts() -> None:
    """Where the home folder cannot be written, as in containers, let matplotlib keep its list of fonts with our caches:
    it would make the list anew for every command, and say so in three lines."""
    with suppress(RuntimeError):  # there is no home folder at all
        own = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        if can_be_made(Path(own) / "matplotlib"):
            return
    os.environ.setdefault("MPLCONFIGDIR", str(cache_path("matplotlib")))


keep_fonts()
