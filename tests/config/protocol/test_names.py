"""The names on the wire: each is one that Kubernetes takes, and no two things have one name."""

import re

import pytest

from config.protocol import names

CONSTANTS = {key: value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
KEYS = {key: value for key, value in CONSTANTS.items() if key != "UNHEALTHY_PREFIX"}


@pytest.mark.parametrize("constant", sorted(KEYS))
def test_a_name_is_a_qualified_name_of_kubernetes(constant: str) -> None:
    assert QUALIFIED.fullmatch(KEYS[constant])


def test_no_two_things_have_the_same_name() -> None:
    assert sorted(set(CONSTANTS.values())) == sorted(CONSTANTS.values())
