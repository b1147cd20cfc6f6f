"""The tests of ibpulse."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
