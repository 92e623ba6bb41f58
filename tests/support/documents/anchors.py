"""Headings of documents, and the anchors that lead to them."""

import re
from collections.abc import Iterator
from typing import Final

FENCED: Final = re.compile(r"^ *(```+).*?^ *\1$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as git hosts derive it."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def anchors(text: str) -> Iterator[str]:
    """Yield the anchors of a document, in order."""
    return map(anchor_of, _HEADING.findall(FENCED.sub("", text)))
