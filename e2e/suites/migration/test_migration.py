"""From the legacy extender to this scheduler, on a real kube-apiserver: docs/migrate.md.

The extender's pods are adopted as they run; both at work side by side; what `adopt` says at each step.
"""

import asyncio
import json
from pathlib import Path

import pytest

from config.protocol import names
from e2e.control_plane import provider
from e2e.control_plane.admin import Json, done
from e2e.support.gpu_site import NODES, GpuSite, cards_of, gpu_node
from e2e.support.kubectl_gpushare import kubectl_gpushare
from e2e.support.legacy_extender import annotated, bound, created, legacy_node, running, started


class Checker:
    """Runs `kubectl gpushare adopt`."""

    def __init__(self, cluster: provider.Target, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder

    async def table(self) -> tuple[int, str]:
        ran = await asyncio.to_thread(kubectl_gpushare, self._cluster, self._folder, "adopt")
        return ran.returncode, ran.stdout

    async def document(self) -> tuple[int, Json]:
        ran = await asyncio.to_thread(kubectl_gpushare, self._cluster, self._folder, "adopt", "-o", "json")
        assert ran.stderr == ""
        return ran.returncode, json.loads(ran.stdout)

    async def checks(self) -> list[str]:
        """What is in the way."""
        _, document = await self.document()
        return sorted(one["check"] for one in document["findings"])


@pytest.fixture
def adopt(cluster: provider.Target, tmp_path: Path) -> Checker:
    return Checker(cluster, tmp_path)


def counted(document: Json) -> dict[str, list[int]]:
    """By node, per card."""
    return {node["node"]: [card["counted"] for card in node["cards"]] for node in document["nodes"]}


async def at_work(site: GpuSite) -> dict[str, list[int]]:
    """The same, as the scheduler at work counts."""
    told = json.loads(await site.scheduler.page("/gpushare-scheduler/inspect"))
    return {node["name"]: [card["usedGPU"] for card in node["devs"]] for node in told["nodes"]}


async def announces(site: GpuSite, name: str, cards: int) -> None:
    """Our device plugin has come to a node of the legacy one."""
    annotations = gpu_node(name, [15] * cards)["metadata"]["annotations"]
    done(await site.admin.patch(f"{NODES}/{name}", {"metadata": {"annotations": annotations}}))


async def test_pods_of_the_extender_are_adopted_as_they_run(site: GpuSite, adopt: Checker) -> None:
    await site.add_nodes(legacy_node("old", 2))
    await running(site, "binpack-0", 12, "old", 0)
    await running(site, "binpack-1", 4, "old", 1)
    before = [await site.read(name) for name in ("binpack-0", "binpack-1")]

    # Beside the extender, on a node that the legacy plugin serves still.
    await site.pod("first", 10)
    first = await site.bound("first")
    assert first["metadata"]["annotations"][names.MEM_IDX] == "1"
    code, document = await adopt.document()
    assert (code, counted(document)) == (1, {"old": [12, 14]})
    assert await adopt.checks() == ["no-inventory"]
    assert [(pod["pod"].rpartition("/")[2], pod["by"]) for pod in document["nodes"][0]["pods"]] == [
        ("binpack-0", "extender"),
        ("binpack-1", "extender"),
        ("first", "scheduler"),
    ]

    # Our device plugin has replaced the legacy one.
    await announces(site, "old", 2)
    code, told = await adopt.table()
    assert (code, "No problems found." in told) == (0, True), told
    await site.pod("second", 3)
    assert cards_of(await site.bound("second")) == {"0": "GPU-old-0"}
    await site.pod("third", 2)
    assert "wants 2, most free 1 (of 15)" in await site.unschedulable("third")
    assert await at_work(site) == {"old": [15, 14]} == counted((await adopt.document())[1])

    after = [await site.read(name) for name in ("binpack-0", "binpack-1")]
    assert before == after, "an adopted pod was written to"


async def test_both_can_give_the_same_card_and_it_is_found(site: GpuSite, adopt: Checker) -> None:
    """The extender's pod is nowhere until its second call: neither scheduler is wrong by what it has seen."""
    await site.nodes(a=[15])
    await created(site, "theirs", 10)
    await annotated(site, "theirs", 0, 10)
    await site.pod("ours", 10)
    assert cards_of(await site.bound("ours")) == {"0": "GPU-a-0"}
    assert await adopt.checks() == ["pending"]
    await bound(site, "theirs", "a")
    await started(site, "theirs")
    code, told = await adopt.table()
    assert (code, "card GPU-a-0 has 15 units, and 20 are booked" in told) == (1, True), told
    await site.pod("next", 1)
    assert "wants 1, most free 0 (of 15)" in await site.unschedulable("next")
    await site.delete_pod("theirs")
    await site.bound("next")
    assert await adopt.checks() == []


async def test_on_nodes_of_their_own_our_pods_stay_away_from_what_the_extender_has_only_annotated(
    site: GpuSite, adopt: Checker
) -> None:
    """The selector keeps ours there, and the toleration lets them in; kube-scheduler keeps the others out."""
    ours, theirs = gpu_node("ours", [15]), legacy_node("theirs", 1)
    ours["metadata"]["labels"] = {"gpushare-migrated": "true"}
    ours["spec"] = {"taints": [{"key": "gpushare-migrated", "value": "true", "effect": "NoSchedule"}]}
    await site.add_nodes(ours, theirs)
    await created(site, "waiting", 10)
    await annotated(site, "waiting", 0, 10)
    moved = {
        "nodeSelector": {"gpushare-migrated": "true"},
        "tolerations": [{"key": "gpushare-migrated", "operator": "Exists"}],
    }
    await site.pod("p", 10, **moved)
    assert (await site.bound("p"))["spec"]["nodeName"] == "ours"
    await bound(site, "waiting", "theirs")
    await started(site, "waiting")
    await site.pod("q", 10, **moved)
    await site.unschedulable("q")
    assert counted((await adopt.document())[1]) == {"ours": [10], "theirs": [10]}
    assert await adopt.checks() == ["no-inventory"]
