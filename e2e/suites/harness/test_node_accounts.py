"""The accounts of two schedulers' nodes see what they are for."""

import json

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.support.node_accounts import HOLDS, Accounts, small_pod

OURS, THEIRS = names.SCHEDULER_NAME, "default-scheduler"


def made(scheduler: str, number: int, cpu: int, *, at_s: int = 0, card: int | None = None) -> Json:
    """A pod, bound as the one of that number and in that second."""
    pod = small_pod(f"p{number}", scheduler, 3)
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{cpu}m"
    pod["spec"]["nodeName"] = "a"
    pod["metadata"]["resourceVersion"] = str(number)
    if card is not None:
        pod["metadata"]["annotations"] = {names.ALLOCATION: json.dumps({"0": {str(card): 4}})}
    since = {"type": "PodScheduled", "lastTransitionTime": f"2026-01-01T00:00:{at_s:02}Z"}
    pod["status"] = {"phase": "Pending", "conditions": [since]}
    return pod


def waiting(scheduler: str, cpu: int, message: str) -> Json:
    pod = made(scheduler, 99, cpu)
    del pod["spec"]["nodeName"]
    pod["status"]["conditions"] = [{"type": "PodScheduled", "message": message}]
    return pod


def test_what_does_not_fit_is_the_pod_that_came_last() -> None:
    accounts = Accounts(["a"], [made(THEIRS, 3, 3000), made(OURS, 1, 5000), made(OURS, 2, 1000)])
    assert accounts.excess("a", [OURS, THEIRS]) == {"cpu": 1000}
    assert not accounts.excess("a", [OURS])
    assert [pod["metadata"]["name"] for pod in accounts.refused("a")] == ["p3"]


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        pytest.param([made(OURS, 1, 5000), made(THEIRS, 2, 3000, at_s=9)], 0, id="all fits"),
        pytest.param([made(OURS, 1, 5000), made(THEIRS, 2, 4000, at_s=9)], 9, id="the other's pod was not seen"),
        pytest.param(
            [made(OURS, 1, 1000), made(OURS, 2, 4000, at_s=7), made(THEIRS, 3, 4000, at_s=9)], 2, id="the last one"
        ),
    ],
)
def test_how_long_a_scheduler_was_behind(pods: list[Json], seconds: int) -> None:
    assert Accounts(["a"], pods).behind_s("a") == seconds


def test_a_card_with_too_much_is_named() -> None:
    pods = [made(OURS, number, 100, card=1) for number in range(5)]
    assert Accounts(["a"], pods).over_committed_cards() == ["a/1"]


@pytest.mark.parametrize(
    ("message", "untrue"),
    [
        pytest.param("0/1 nodes are available: 1 Insufficient cpu.", False, id="so it is"),
        pytest.param("0/1 nodes are available: 1 Insufficient memory.", True, id="there is enough"),
        pytest.param("0/2 nodes are available: 1 Insufficient cpu.", True, id="another number of nodes"),
        pytest.param("", True, id="nothing was said"),
    ],
)
def test_an_untrue_message_is_seen(message: str, *, untrue: bool) -> None:
    pod = waiting(THEIRS, 2000, message)
    accounts = Accounts(["a"], [made(OURS, 1, HOLDS["cpu"] - 1000), pod])
    assert bool(accounts.untrue(pod)) is untrue
    assert accounts.could_run() == []


def test_a_pod_that_waits_beside_room_is_named() -> None:
    assert Accounts(["a"], [waiting(THEIRS, 8000, "")]).could_run() == ["p99"]


def test_without_a_card_there_is_no_room_for_gpu_memory() -> None:
    full = [made(OURS, number, 100, card=number % 2) for number in range(8)]
    assert Accounts(["a"], [*full, waiting(OURS, 100, "")]).could_run() == []
