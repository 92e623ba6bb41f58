"""Checks of limits by the driver: each requirement, its remedy, and how much it matters."""

from dataclasses import replace

import msgspec
import pytest

from deviceplugin.doctor import isolation_checks
from deviceplugin.doctor.checks import examined
from deviceplugin.doctor.facts import Facts, Verdict
from tests.deviceplugin.doctor.test_checks import STATUS, WELL

CAN = replace(WELL, driver="615.10", cards=(replace(WELL.cards[0], limits=True),))
OLD = WELL
SPLIT = replace(WELL, cards=(replace(WELL.cards[0], mig=True),))
V1 = replace(CAN, cgroup_problem="the host has no cgroup v2")
BARE = replace(CAN, hookless=frozenset({"GPU-a"}))
BY_ENVIRONMENT = replace(CAN, status=msgspec.structs.replace(STATUS, mode="environment"))
OK, WARNING, FAILED, UNKNOWN = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "found", "remedy"),
    [
        pytest.param(CAN, "limits", OK, "driver 615.10 can limit memory on 1 card", "", id="a driver with limits"),
        pytest.param(OLD, "limits", OK, "advisory: driver 580.95.05 cannot", "", id="an older driver"),
        pytest.param(SPLIT, "limits", OK, "in MIG mode", "", id="a split card"),
        pytest.param(replace(OLD, driver=""), "limits", UNKNOWN, "does not answer", "", id="a silent driver"),
        pytest.param(OLD, "cgroup", OK, "not needed: the driver cannot", "", id="cgroups without limits"),
        pytest.param(CAN, "cgroup", OK, "cgroup v2 with a controller", "", id="cgroup v2"),
        pytest.param(V1, "cgroup", WARNING, "advisory: the host has no cgroup v2", "boot the node", id="cgroup v1"),
        pytest.param(CAN, "hook", OK, "have the hook", "", id="a hook"),
        pytest.param(BARE, "hook", WARNING, "no hook apply-cuda-memory-limits for card 0", "1.20.1", id="no hook"),
        pytest.param(BY_ENVIRONMENT, "hook", WARNING, "mode environment", "set mode: cdi", id="environment"),
        pytest.param(replace(CAN, simulated=True), "hook", OK, "simulated cards", "", id="simulated"),
    ],
)
def test_with_auto_what_is_missing_is_a_warning_at_most(
    facts: Facts, check: str, verdict: Verdict, found: str, remedy: str
) -> None:
    result = getattr(isolation_checks, check)(facts)
    assert (result.check, result.verdict) == (check, verdict)
    assert (found in result.found, remedy in result.remedy, bool(result.remedy)) == (True, True, bool(remedy))


@pytest.mark.parametrize("strict", [{"isolation": "driver"}, {"enforcement": "required"}])
@pytest.mark.parametrize(("facts", "check"), [(OLD, "limits"), (V1, "cgroup"), (BARE, "hook"), (OLD, "isolation")])
def test_where_limits_are_required_what_is_missing_fails(facts: Facts, check: str, strict: dict[str, str]) -> None:
    result = getattr(isolation_checks, check)(replace(facts, **strict))  # type: ignore[arg-type]
    assert (result.verdict, bool(result.remedy)) == (FAILED, True)


@pytest.mark.parametrize("check", ["limits", "cgroup", "hook"])
def test_another_mechanism_needs_none_of_it(check: str) -> None:
    result = getattr(isolation_checks, check)(replace(V1, isolation="mps", enforcement="required"))
    assert (result.verdict, result.found) == (OK, "not needed with isolation: mps")


def test_what_enforces_now_is_said_for_all_cards() -> None:
    cards = tuple(
        msgspec.structs.replace(STATUS.cards[0], index=index, isolation=word)
        for index, word in enumerate(("driver", "driver", ""))
    )
    status = msgspec.structs.replace(STATUS, isolation="driver", cards=cards)
    (found,) = (one for one in examined(replace(CAN, status=status)).findings if one.check == "isolation")
    assert (found.verdict, found.found) == (OK, "isolation driver: 1 card advisory, 2 cards enforced by driver")
    silent = isolation_checks.isolation(replace(CAN, status=None))
    assert silent.verdict is UNKNOWN
