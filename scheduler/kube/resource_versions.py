"""Resource versions as numbers, to compare two of them.

Source: KEP-5504 (Kubernetes 1.35): versions of one resource are comparable, as they always were in practice.
"""

from typing import Final

# Digits of an unsigned 64-bit number.
_DIGITS: Final = 20


def version_number(resource_version: str) -> int:
    """The resource version as a number; 0 if it is empty, or is not the number that every known server writes."""
    return int(resource_version) if is_version(resource_version) else 0


def is_version(text: str) -> bool:
    """Whether the text is a comparable resource version: an unsigned 64-bit number."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS
