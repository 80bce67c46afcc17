"""Wheels for other machines: `make wheel` builds one, `make wheel-check` installs it into empty environments."""
