"""Parameters of a query in its URL. Every text and number is limited."""

from collections.abc import Mapping
from typing import Final

from scheduler.tools.page.queries import MOST_REPLICAS, WhatIfQuery

LONGEST_TEXT: Final = 253
_LARGEST: Final = 2**24
_MOST_CARDS: Final = 256


def wanted_pod(query: Mapping[str, str]) -> WhatIfQuery:
    """Return the pod that the parameters describe. Raises ValueError."""
    selector: dict[str, str] = {}
    for term in query.get("selector", "")[: 4 * LONGEST_TEXT].split(","):
        key, equals, value = term.strip().partition("=")
        if bool(equals) is not bool(term.strip()):
            message = f"expected labels as key=value, found {term.strip()!r}"
            raise ValueError(message)
        selector |= {key.strip(): value.strip()} if equals else {}
    units, cards = number(query.get("units"), -1), number(query.get("cards"), 1)
    replicas = number(query.get("replicas"), 1)
    if not 1 <= replicas <= MOST_REPLICAS:
        message = f"expected 1 to {MOST_REPLICAS} copies"
        raise ValueError(message)
    if not 0 <= units <= _LARGEST or not 1 <= cards <= _MOST_CARDS:
        message = f"expected 0 to {_LARGEST} units of memory and 1 to {_MOST_CARDS} cards"
        raise ValueError(message)
    return WhatIfQuery(
        units=units,
        cards=cards,
        exclusive=query.get("exclusive", "") == "true",
        cpu=query.get("cpu", "")[:LONGEST_TEXT],
        memory=query.get("memory", "")[:LONGEST_TEXT],
        selector=selector,
        replicas=replicas,
    )


def number(text: str | None, otherwise: int) -> int:
    """Return the number; `otherwise` if it is missing, or not a whole number of at most 18 digits."""
    readable = text is not None and text.isascii() and text.isdigit() and len(text) < len(str(2**63))
    return int(text) if text is not None and readable else otherwise
