"""Hundreds of containers on nodes with NVIDIA cards whose programs end, and which reboot, at random.

`NIGHTLY_SEED` repeats the choices of a run; `NVIDIA_CONTAINERS` says how many containers start in it at least.
"""

import itertools
import os
import random
import sys
from typing import Final

import pytest

from e2e.control_plane.admin import Json
from e2e.support.node_rounds import Rounds
from e2e.support.nvidia_site import DRIVERS, UNITS, WAYS, NvidiaNode, NvidiaSite, misled

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("node_ready")]

_CONTAINERS: Final = int(os.environ.get("NVIDIA_CONTAINERS", "500"))
_OF_A_NODE: Final = 60
_CARDS: Final = (1, 2, 8, 16)
_SMALLEST, _LARGEST = 1, UNITS // 8
_PODS_AT_ONCE: Final = 4


def some_pods(on: NvidiaNode, chance: random.Random, round_: int) -> list[Json]:
    """A few pods that fit: at most a quarter of the cards' units in all with those of the round before."""
    made = []
    for number in range(chance.randint(1, _PODS_AT_ONCE)):
        cards = 2 if on.hardware.cards > 1 and chance.random() < 1 / 4 else 1
        units = chance.randint(_SMALLEST, _LARGEST // cards) * cards
        made.append(on.pod(f"round-{round_}-{number}", units, cards=cards))
    return made


async def test_no_container_finds_another_card_or_none_whatever_ends_meanwhile(nvidia: NvidiaSite) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}\n")
    chance, started, failed = random.Random(seed), 0, 0  # noqa: S311 - which mishap comes next
    wrong: list[str] = []
    ways = itertools.cycle(chance.sample([*WAYS], len(WAYS)))
    while started < _CONTAINERS:
        way, driver, cards = next(ways), chance.choice([*DRIVERS]), chance.choice(_CARDS)
        sys.stdout.write(f"{way}, driver {driver}, {cards} cards\n")
        async with nvidia.node(way, driver, cards) as on:
            rounds = Rounds(on, chance, some_pods, misled, NvidiaNode.wrong)
            await rounds.play(_OF_A_NODE)
        started, failed = started + len(rounds.lives), failed + rounds.failed
        wrong += rounds.wrong
        sys.stdout.write(f"{started} containers, {failed} pods failed, {len(wrong)} wrong\n")
    assert wrong == []
