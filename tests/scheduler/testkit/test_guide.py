"""What docs/write-a-rule.md quotes is what the kit says of its rule."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from scheduler.state.changes import Change
from scheduler.testkit.check import RuleBroken, check_rule
from tests.support import guide

TEXT: Final = guide.GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("left_out", "quoted"),
    [
        pytest.param(
            {"depends": Change(0)}, "`depends` lacks PODS: the answer for node n1 changed with the pods on it"
        ),
        pytest.param({"signature": lambda *_: None}, "`signature` lacks owner_uid"),
    ],
)
def test_the_kit_says_what_the_guide_quotes(left_out: Mapping[str, Any], quoted: str) -> None:
    names: dict[str, Any] = {"__name__": "max_pods_per_owner"}
    exec(guide.files()["max_pods_per_owner.py"], names)  # noqa: S102 - the guide's file
    rule = type("MaxPodsPerOwner", (names["MaxPodsPerOwner"],), dict(left_out))
    assert quoted in TEXT
    with pytest.raises(RuleBroken) as broken:
        check_rule(rule, shrink_s=0.1)
    # On which node it shows depends on how far the search came.
    assert re.sub(r"n\d", "n", quoted) in re.sub(r"n\d", "n", str(broken.value).splitlines()[0])
