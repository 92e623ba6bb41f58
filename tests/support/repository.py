"""Location of this checkout."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
