"""The words for what enforces shares of memory."""

import pytest

from config.protocol.isolation import worded


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("driver", "enforced by driver"),
        ("mps", "enforced by MPS"),
        ("hami-core", "enforced by HAMi-core"),
        ("own", "enforced by its own mechanism"),
        ("of-a-later-version", "enforced by of-a-later-version"),
        ("", "advisory"),
    ],
)
def test_every_kind_has_its_words(kind: str, words: str) -> None:
    assert worded(kind) == words
