"""The files in docs/develop/write-a-rule.md, as a reader would write them."""

import re
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

GUIDE: Final = ROOT / "docs/develop/write-a-rule.md"
# "`name`:" ends a paragraph, and the file follows as a block of code.
_FILE: Final = re.compile(r"`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """Return path -> content."""
    return dict(_FILE.findall(GUIDE.read_text(encoding="utf-8")))


def write(folder: Path) -> None:
    """Write all files below `folder`."""
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
