"""Resource versions as numbers, to tell which of two is the later one.

Source: KEP-5504, of Kubernetes 1.35: those of one resource can be compared, and always could in fact.
"""

from typing import Final

# Of an unsigned number of 64 bits.
_DIGITS: Final = 20


def version_number(resource_version: str) -> int:
    """A resource version as the number that it is in every known server; 0 for none, and for what is no number."""
    return int(resource_version) if is_version(resource_version) else 0


def is_version(text: str) -> bool:
    """Whether it is a resource version that can be compared: an unsigned number of 64 bits."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS
