"""Offers the rules of this folder as an installed package would: by entry points, in a folder that Python looks at."""

import sys
from pathlib import Path
from typing import Final

from scheduler.core.build import ENTRY_POINTS

_RULES: Final = ("PackingBestFit", "PackingFgd")


def offer_rules(folder: Path) -> None:
    """Make the rules known to this process and to those that it starts. folder: for what describes the package."""
    described = folder / "packing_rules-1.dist-info"
    described.mkdir(parents=True, exist_ok=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: packing-rules\nVersion: 1\n", encoding="utf-8")
    points = "".join(f"{name} = e2e.packing.rules:{name}\n" for name in _RULES)
    (described / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}", encoding="utf-8")
    sys.path.append(str(folder.resolve()))
