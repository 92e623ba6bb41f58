"""Hundreds of pods at once on a real kubelet: `make test-nightly` runs it."""

import random
import sys
from typing import Final

import pytest

from e2e.control_plane.admin import Admin
from e2e.node.announced import allocatable
from e2e.suites.node.test_device_plugin import mismatches_of, mixed, rejected
from e2e.support.shared_node import GIB, SharedNode

pytestmark = pytest.mark.nightly

PODS: Final = 300
# As many as a kubelet takes by default. Which of them an Allocate is for costs a question for each that waits.
PODS_BY_ENVIRONMENT: Final = 100


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
