"""How much a container may use while it is free: what the annotation says."""

import pytest

from config.protocol.memory_limit import MemoryLimitError, limits

TWO = {"train": 3, "side": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", {"train": 8, "side": 8}),
        (" 3 ", {"train": 3, "side": 3}),
        ("train=8", {"train": 8, "side": 2}),
        ("train=8, side=2", {"train": 8, "side": 2}),
    ],
)
def test_each_container_gets_its_limit(text: str, expected: dict[str, int]) -> None:
    assert limits(text, TWO) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found ''"),
        ("-1", "found '-1'"),
        ("1.5", "found '1.5'"),
        ("٣", "found"),
        ("99999999999", "found '99999999999'"),
        ("2", "container train requests 3 units, more than the limit of 2"),
        ("side=1", "container side requests 2 units, more than the limit of 1"),
        ("train=8,train=9", "each container once"),
        ("other=8", "no container 'other' requests GPU memory"),
        ("train=8,", "each container once"),
        ("train=x", "found 'x'"),
        ("1" * 5000, "it has 5000 characters"),
    ],
)
def test_a_limit_that_says_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(MemoryLimitError, match=said):
        limits(text, TWO)
