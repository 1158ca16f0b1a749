"""``python -m shoal.cli``."""

import sys

from shoal.cli import main

if __name__ == "__main__":
    sys.exit(main())
