"""What takes too long for every change: many pods at once, and restarts at random. `make test-nightly` runs it."""

import os
import random
import sys
from typing import Final

import pytest

from e2e.control_plane.admin import Admin
from e2e.node.announced import allocatable
from e2e.suites.node.test_device_plugin import mismatches_of, mixed, rejected
from e2e.suites.node.test_device_plugin_restarts import (
    both,
    containerd,
    killed_plugin,
    kubelet,
    plugin,
    replaced,
    running_pods,
)
from e2e.support.shared_node import GIB, SharedNode, pods, shared_pod, sharing

pytestmark = pytest.mark.nightly

PODS: Final = 300
# As many as a kubelet takes by default. Which of them an Allocate is for costs a question for each that waits.
PODS_BY_ENVIRONMENT: Final = 100
RESTARTS: Final = 25
_RESTARTS: Final = (kubelet, plugin, killed_plugin, both, containerd)


@pytest.mark.parametrize(("mode", "count"), [("cdi", PODS), ("environment", PODS_BY_ENVIRONMENT)])
async def test_hundreds_of_pods_with_others_rejected_between_them_get_their_cards(
    shared: SharedNode, on_node: Admin, mode: str, count: int
) -> None:
    rng = random.Random(300)  # noqa: S311 - the same pods every time
    async with shared.instead([80 * GIB] * 8, mode=mode) as other:
        await other.ready()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 640)
        wanted = [mixed(number, rng) for number in range(count)]
        refused = [rejected(number, shared.node.name) for number in range(count // 10)]
        wrong = await mismatches_of(shared, on_node, wanted, refused, by_cdi=mode == "cdi", within_s=900)
        sys.stdout.write(f"{mode}: {count} pods, {count // 10} rejected, {len(wrong)} mismatches\n")
        assert wrong == []


async def test_restarts_at_random_with_pods_running_and_starting(shared: SharedNode, on_node: Admin) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}\n")
    rng = random.Random(seed)  # noqa: S311 - to be repeated
    async with running_pods(shared, on_node):
        for number in range(RESTARTS):
            restart = rng.choice(_RESTARTS)
            starting = [shared_pod(f"starting-{number}-{k}", [sharing(rng.randint(1, 3))]) for k in range(5)]
            async with pods(on_node, starting) as created:
                restart(shared)
                await shared.plugin.ready()
                found = [await replaced(on_node, name) for name in created]
                wrong = [wrong for pod in found for wrong in shared.mismatches(pod)]
                sys.stdout.write(f"{number}: {restart.__name__}: {len(wrong)} mismatches\n")
                assert wrong == []
