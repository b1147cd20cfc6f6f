"""`python -m ibpulse` is `ibpulse`. It must hold nothing else."""

import sys

from ibpulse.cli import main

if __name__ == "__main__":
    sys.exit(main())
