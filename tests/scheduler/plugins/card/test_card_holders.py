"""Which cards hold a pod that a selector matches, however many pods there are."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.plugins.card.card_affinity import CardHolders
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray
from scheduler.state.columns.selectors import match, of_text
from scheduler.state.tables import Tables
from tests.support.builders import cluster

LABELS = (
    {},
    {"app": "web"},
    {"app": "db"},
    {"app": "web", "tier": "a"},
    *({"app": "web", "number": str(number)} for number in range(12)),
)
SELECTORS = ("app", "!app", "app=web", "app!=web", "app in (db, web),!tier", "number", "number in (3, 5)", "app,none")
HOLDERS = st.tuples(st.integers(0, 99), st.integers(0, 3), st.integers(0, len(LABELS) - 1))


class Counted(dict[str, str]):
    """Labels that count how often they are looked at."""

    looks = 0

    def get(self, key: str, default: Any = None, /) -> Any:  # noqa: ANN401 - as dict
        Counted.looks += 1
        return super().get(key, default)


def of_a_hundred_nodes() -> Tables:
    return cluster(**{f"n{number:02}": [16] * 4 for number in range(100)})


def expected(there: Counter[tuple[int, int, int]], selector: str, tables: Tables) -> BoolArray:
    found = np.zeros((4, tables.capacity), dtype=np.bool_)
    for (row, slot, labels), pods in there.items():
        found[slot, row] |= pods > 0 and match(of_text(selector), LABELS[labels])
    return found


@given(st.lists(st.tuples(HOLDERS, st.booleans()), max_size=60), st.sampled_from(SELECTORS))
@settings(max_examples=60, deadline=None)
def test_a_selector_finds_the_same_cards_over_columns_as_pod_by_pod(
    steps: list[tuple[tuple[int, int, int], bool]], first: str
) -> None:
    tables = of_a_hundred_nodes()
    holders, there = CardHolders(tables), Counter[tuple[int, int, int]]()
    for number, (holder, comes) in enumerate(steps):
        if not comes and not there[holder]:
            continue
        row, slot, labels = holder
        holders.book(row, (slot,), ("default", LABELS[labels]), 1 if comes else -1)
        there[holder] += 1 if comes else -1
        if number % 7 == 0:
            holders.matching("default", of_text(first), ALL_ROWS)
    for selector in SELECTORS:
        whole = expected(there, selector, tables)
        for rows in (ALL_ROWS, slice(0, 1), np.arange(5, 9), np.arange(10, 90)):
            found = holders.matching("default", of_text(selector), rows)
            assert (found == whole[:, rows]).all(), (selector, rows)


def of_a_hundred_pods(keys: list[str]) -> CardHolders:
    holders = CardHolders(of_a_hundred_nodes())
    for number in range(100):
        labels = Counted({"pod-index": str(number), **dict.fromkeys(keys, "v")})
        holders.book(number, (0,), ("default", labels), 1)
    return holders


def test_a_selector_looks_at_no_pod_whatever_keys_it_names() -> None:
    keys = [f"k{number}" for number in range(16)]
    holders = of_a_hundred_pods(keys)
    selectors = (
        ",".join(("pod-index!=7", *(f"{key} in (v, w7)" for key in keys[1:]))),
        ",".join(("k0", "k1=other", *(f"{key}!=w" for key in keys[2:]))),
        f"pod-index in ({','.join(map(str, range(40)))})",
    )
    Counted.looks = 0
    found = [holders.matching("default", of_text(selector), ALL_ROWS).sum() for selector in selectors]
    assert (found, Counted.looks) == ([99, 0, 40], 0)
