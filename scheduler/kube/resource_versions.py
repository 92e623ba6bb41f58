"""Resource versions as numbers, to compare two of them.

Source: KEP-5504, of Kubernetes 1.35: versions of one resource are comparable, and always were in practice.
"""

from typing import Final

# Digits of an unsigned 64-bit number.
_DIGITS: Final = 20


def version_number(resource_version: str) -> int:
    """A resource version as the number that it is in every known server; 0 for none, and for another text."""
    return int(resource_version) if is_version(resource_version) else 0


def is_version(text: str) -> bool:
    """Whether it is a resource version that can be compared: an unsigned number of 64 bits."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS
