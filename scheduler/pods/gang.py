"""The gang of a pod: pods that start together or not at all. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.protocol import names

# Pods that are placed in one transaction. Nothing else is decided meanwhile, for up to a millisecond for each pod.
MOST_TOGETHER: Final = 512
_LONGEST_NUMBER: Final = 8


class GangKey(NamedTuple):
    """Key of a gang."""

    namespace: str
    name: str


class Gang(NamedTuple):
    """Gang that a pod names. minimum: pods that must start together, 1..MOST_TOGETHER.

    problem: why the minimum cannot be read; "" if it can.
    """

    key: GangKey
    minimum: int
    problem: str = ""


def gang_of(namespace: str, annotations: Mapping[str, str]) -> Gang | None:
    """Return the gang in the annotations; None if they name none."""
    name = annotations.get(names.GANG, "")
    if not name:
        return None
    text = annotations.get(names.GANG_MIN, "")
    valid = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER and 1 <= int(text) <= MOST_TOGETHER
    found = f"found {text[:_LONGEST_NUMBER]!r}" if text else "found none"
    problem = "" if valid else f"annotation {names.GANG_MIN}: expected a number from 1 to {MOST_TOGETHER}, {found}"
    return Gang(GangKey(namespace, name), int(text) if valid else 1, problem)
