"""Kubernetes resource quantities ("500m", "2Gi", "1e3") as exact integers.

Source: k8s.io/apimachinery/pkg/api/resource/quantity.go (grammar, rounding away from zero, the int64 range).
"""

import re
from functools import lru_cache
from typing import Final

_QUANTITY: Final = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,4})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MAX_INT64: Final = 2**63 - 1
# A longer string of digits is an attack on the parser, not an amount (2**63 has 19 digits).
_LONGEST: Final = 64
# Ten to this power takes every amount above 0 beyond 2**63 when multiplied, and below 1 when divided.
_MOST_DIGITS: Final = _LONGEST + 19
_TENS: Final[tuple[int, ...]] = tuple(10**power for power in range(_MOST_DIGITS + 1))
# Digits of an amount that is read without the grammar.
_SHORT: Final = 18


class QuantityError(ValueError):
    """Text that is not a Kubernetes quantity."""


def _scaled(text: str, power: int) -> int:
    """Return the quantity times ten to the `power`, rounded away from zero and clamped. Raises QuantityError.

    One pod may have ten thousand amounts, so amounts without sign, exponent and binary suffix skip the grammar.
    """
    decimal = _DECIMAL.get(text[-1:])
    before, _, after = (text if decimal is None else text[:-1]).partition(".")
    digits = before + after
    if len(digits) <= _SHORT and digits.isdecimal() and digits.isascii():
        return _times_power_of_ten(int(digits), power + (decimal or 0) - len(after))
    return _by_grammar(text, power)


def _by_grammar(text: str, power: int) -> int:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(
            f"{text[:_LONGEST]!r} is not a quantity; expected a number with an optional suffix such as 500m, 2Gi, 1e3"
        )
    sign, digits, exponent, suffix = match.groups()
    before, _, after = digits.partition(".")
    value, power = int(before + after), power - len(after)
    if exponent is not None:
        power += int(exponent[1:])
    elif suffix in _BINARY:
        value <<= _BINARY[suffix]
    elif suffix is not None:
        power += _DECIMAL[suffix]
    rounded = _times_power_of_ten(value, power)
    return -rounded if sign == "-" else rounded


def _times_power_of_ten(value: int, power: int) -> int:
    """Return `value` (>= 0) times ten to the `power`, rounded up and clamped. Computes no huge powers."""
    scale = _TENS[min(abs(power), _MOST_DIGITS)]
    return min(value * scale if power >= 0 else -(-value // scale), MAX_INT64)


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """Return the quantity in whole units, rounded away from zero, clamped to ±(2**63 - 1).

    Raises QuantityError if `text` is not a quantity.
    """
    return _scaled(text, 0)


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Return the quantity in thousandths, rounded away from zero, clamped to ±(2**63 - 1): "250m" -> 250, "2" -> 2000.

    Raises QuantityError if `text` is not a quantity.
    """
    return _scaled(text, 3)
