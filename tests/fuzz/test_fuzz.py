"""Some fuzz cases at every change; `python -m tests.fuzz.nightly` runs many. A failure names the case.

The cases are the same each time, unless NIGHTLY_SEED says others.
"""

import os
from pathlib import Path
from typing import Final

import msgspec
import pytest

from scheduler.kube import port
from tests.fuzz import corpus, loaders, watched
from tests.fuzz.loaders import Loader

ROUNDS: Final = 3
FILES: Final = 6
SEED: Final = int(os.environ.get("NIGHTLY_SEED", "0"))
# An attack of a hostile tenant takes as long: docs/security.md.
MOST_S: Final = 0.25
# What the arrays grew by, and caches of what may come again.
MOST_LEFT: Final = 100_000


@pytest.mark.parametrize("kind", port.KINDS, ids=lambda kind: kind.name)
def test_every_object_of_the_corpus_is_read_as_it_comes_from_an_api_server(kind: port.Kind[port.T]) -> None:
    for document in corpus.objects()[kind.name]:
        assert msgspec.json.decode(msgspec.json.encode(document), type=kind.type).metadata.name


@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_object_stops_the_service_nor_harms_another_nor_stays_when_it_is_gone(number: int) -> None:
    found = watched.round_of(SEED + number)

    assert found.objects > 20
    assert found.said > 1_000
    assert found.good_s < MOST_S
    assert found.slowest[0] < MOST_S, found.slowest
    assert found.left < MOST_LEFT


@pytest.mark.parametrize("loader", loaders.loaders(), ids=lambda loader: loader.name)
def test_no_file_stops_what_reads_it_and_its_mistakes_are_told(loader: Loader, tmp_path: Path) -> None:
    outcome = loaders.Outcome()

    loaders.cases(loader, range(SEED, SEED + FILES), tmp_path, outcome)

    assert outcome.counts[loader.name] == FILES
