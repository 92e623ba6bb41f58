"""Which groups there are, and which of them our engine is held to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from tests.differential.groups import taints
from tests.differential.manifests import Scenario

Make: TypeAlias = Callable[[Random, str], Scenario]


@dataclass(frozen=True, slots=True)
class Group:
    """make: a source of chance and a name -> a scenario. count: how many scenarios.

    missing: the rule that our engine lacks for it: it is recorded, not compared; "" when it is compared.
    """

    make: Make
    count: int = 25
    missing: str = ""


GROUPS: Final[Mapping[str, Group]] = {
    "taints": Group(taints.taints),
    "unschedulable": Group(taints.unschedulable, 12),
}


def scenarios(name: str) -> list[Scenario]:
    """Those of a group: always the same, whatever other groups there are."""
    group = GROUPS[name]
    return [
        group.make(Random(f"{name}/{number}"), f"{name}/{number}")  # noqa: S311 - repeatable
        for number in range(group.count)
    ]
