"""`python -m bsatnp`."""

import sys

from bsatnp.cli import main

if __name__ == "__main__":
    sys.exit(main())
