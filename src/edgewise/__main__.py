"""`python -m edgewise` is the `edgewise` command."""

import sys

from edgewise.apps.command.main import main

if __name__ == "__main__":
    sys.exit(main())
