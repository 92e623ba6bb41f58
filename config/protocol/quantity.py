"""Kubernetes resource quantities ("500m", "2Gi", "1e3") as exact integers.

Source: k8s.io/apimachinery/pkg/api/resource/quantity.go (grammar, rounding away from zero, the int64 range).
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_QUANTITY: Final = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,4})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MAX_INT64: Final = 2**63 - 1
# A longer string of digits is an attack on the parser, not an amount (2**63 has 19 digits).
_LONGEST: Final = 64


class QuantityError(ValueError):
    """Text that is not a Kubernetes quantity."""


@lru_cache(maxsize=4096)
def _exact(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        message = (
            f"{text[:_LONGEST]!r} is not a quantity; expected a number with an optional suffix such as 500m, 2Gi, 1e3"
        )
        raise QuantityError(message)
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits.rstrip(".")) * _scale(exponent, suffix)
    return -value if sign == "-" else value


def _scale(exponent: str | None, suffix: str | None) -> Fraction:
    if exponent is not None:
        return Fraction(10) ** int(exponent[1:])
    if suffix is None:
        return Fraction(1)
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    return Fraction(10) ** _DECIMAL[suffix]


def _away_from_zero(value: Fraction) -> int:
    rounded = min(MAX_INT64, -(-abs(value.numerator) // value.denominator))
    return -rounded if value < 0 else rounded


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """The quantity in whole units, rounded away from zero, clamped to ±(2**63 - 1).

    Raises QuantityError when `text` is not a quantity.
    """
    return _away_from_zero(_exact(text))


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """The quantity in thousandths, rounded away from zero, clamped to ±(2**63 - 1): "250m" -> 250, "2" -> 2000.

    Raises QuantityError when `text` is not a quantity.
    """
    return _away_from_zero(_exact(text) * 1000)
