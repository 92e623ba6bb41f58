"""Our process beside the real kube-scheduler: the same pods on the same API server, one after the other.

The scenarios are those of the differential test, set up as users and nodes would, and nothing is pinned. Compared are
the node, the condition, the Event, who is preempted, and all of it with what was recorded of kube-scheduler: so the
oracle that is asked in its place everywhere else says what the released process says.
"""

import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.beside import Asked, Comparison, can_be_set_up, of_group
from e2e.support.scenario_site import ScenarioSite
from e2e.support.told_of_pods import OURS, THEIRS
from tests.differential.record import ask
from tests.differential.table import GROUPS

# No scheduler attempts a probe of node_name; claims of ephemeral volumes name a pod that is not there yet; the last
# two have pods that kube-scheduler would attempt.
LEFT_OUT: Final = frozenset({"node_name", "volume_ephemeral", "preemption_again", "nominated"})
COMPARED: Final = tuple(group for group in GROUPS if group not in LEFT_OUT)
# Of rules that have several groups the one with most in it; the other groups are for the night.
QUICK: Final = tuple(
    group
    for group in COMPARED
    if group
    not in {
        *("unschedulable", "several_resources", "resized", "shared_gpu_nodes", "required_anti_affinity"),
        *("affinity_label_keys", "spread_domains", "spread_label_keys", "volume_static", "volume_dynamic"),
        *("preemption_wide", "preemption_lowest", "plain"),
    }
)
NIGHTLY_SAMPLE: Final = 6
NEW: Final = 2
WITHOUT_A_RULE: Final = "without-a-rule"
KUBE_SCHEDULER: Final = {"clientConnection": {"qps": 5000, "burst": 5000}}
CONFIGURATION: Final = {
    **NO_PREDECESSOR,
    "profiles": [
        {"schedulerName": OURS},
        {"schedulerName": WITHOUT_A_RULE, "plugins": {"multiPoint": {"disabled": [{"name": "NodeAffinity"}]}}},
    ],
}


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane(scheduler=KUBE_SCHEDULER) as started:
        yield started


@pytest.fixture(scope="module")
def scheduler(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    folder = tmp_path_factory.mktemp("scheduler")
    with SchedulerProcess(control_plane.kubeconfig_path(), folder, CONFIGURATION) as started:
        yield started


@pytest.fixture
async def comparison(control_plane: ControlPlane, scheduler: SchedulerProcess) -> AsyncIterator[Comparison]:
    await scheduler.ready()
    async with Admin(control_plane.access()) as user:
        made = Comparison(ScenarioSite(user, (THEIRS, OURS)))
        yield made
        sys.stdout.write("\n  ".join([f"  {made}", *map(str, made.again), ""]))


@pytest.mark.parametrize("group", QUICK)
async def test_both_say_the_same_of_the_same_pods(comparison: Comparison, group: str) -> None:
    await comparison.of(of_group(group)[0])

    assert comparison.compared
    assert not comparison.differences, "\n".join(comparison.differences)


async def test_a_rule_that_is_left_out_is_seen(comparison: Comparison) -> None:
    comparison.ours, comparison.times_asked = WITHOUT_A_RULE, 1

    await comparison.of(of_group("node_affinity")[0])

    assert comparison.differences


@pytest.mark.nightly
@pytest.mark.parametrize("group", COMPARED)
async def test_both_say_the_same_of_many_pods(comparison: Comparison, group: str) -> None:
    comparison.victims = 3
    for asked in of_group(group)[:NIGHTLY_SAMPLE]:
        await comparison.of(asked)

    assert not comparison.differences, "\n".join(comparison.differences)


@pytest.mark.nightly
async def test_both_say_the_same_of_pods_that_nobody_has_recorded(comparison: Comparison) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}\n")
    oracle = binaries.ensure(["kube-scheduler-oracle"])["kube-scheduler-oracle"]
    for group in COMPARED:
        names = [f"{group}/{seed}-{number}" for number in range(NEW)]
        made = [GROUPS[group].make(random.Random(name), name) for name in names]  # noqa: S311 - to be repeated
        for asked in filter(can_be_set_up, map(Asked, made, ask(oracle, made)[1])):
            await comparison.of(asked)

    assert not comparison.differences, "\n".join(comparison.differences)
