"""Every way of bringing NVIDIA cards into containers, on nodes that differ from real ones in the silicon alone.

NVIDIA's own container toolkit writes the CDI specs, or is the runtime. Driver and cards are stand-ins.
"""

import asyncio
from collections.abc import Iterator

import pytest

from e2e.control_plane.admin import Json
from e2e.support.nvidia_site import UNITS, WAYS, NvidiaSite, all_wrong, cuda_pod, nvidia_site

pytestmark = pytest.mark.usefixtures("node_ready")


@pytest.fixture(scope="module")
def site(node_ready: None) -> Iterator[NvidiaSite]:  # noqa: ARG001 - asked for its skip
    with nvidia_site() as started:
        yield started


def wanted(way: str, cards: int) -> list[Json]:
    """Two pods that share a card; where there are more, one on a card of its own and one on two."""
    sharing = [cuda_pod(f"shares-{number}", way, UNITS // 2) for number in range(2)]
    alone = [cuda_pod("alone", way, UNITS)] if cards > 1 else []
    on_two = [cuda_pod("on-two", way, 2 * UNITS, cards=2)] if cards > 3 else []
    return [*sharing, *alone, *on_two]


@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize(("driver", "cards"), [("container", 1), ("/", 2), ("container", 8), ("/", 16)])
def test_containers_find_their_own_cards_also_after_a_reboot(
    site: NvidiaSite, way: str, driver: str, cards: int
) -> None:
    with site.node(way, driver, cards) as shared:
        asyncio.run(shared.plugin.ready())
        assert asyncio.run(all_wrong(shared, wanted(way, cards))) == []

        shared.node.reboot()
        shared.plugin.start()
        asyncio.run(shared.plugin.ready())
        assert asyncio.run(all_wrong(shared, wanted(way, cards))) == []
