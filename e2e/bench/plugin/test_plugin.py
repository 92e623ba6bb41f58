"""The measurement of the device plugin: five pods on a real API server, and the tables that come of it."""

import dataclasses
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.cdi import spec
from deviceplugin.cdi.mode import Mode
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from e2e.bench.plugin import pods, report, site
from e2e.bench.plugin.pods import BoundPod
from e2e.bench.plugin.site import BenchNode, Calls, PluginRun
from e2e.control_plane.admin import Admin
from e2e.control_plane.provider import Target

PODS = 5
SAMPLE = PluginRun("cdi", PODS, 1, Calls([1.0, 2.0, 4.0], [10.0, 60.0]), resident_mib=92.0, idle_percent=0.2)


@pytest.fixture
async def node(admin: Admin, namespace: str) -> AsyncIterator[BenchNode]:
    made = await site.node_with_pods(admin, PODS, namespace)
    yield made
    await admin.delete(f"/api/v1/nodes/{made.name}")


@pytest.fixture
def folder() -> Iterator[Path]:
    # A unix socket's path has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as path:
        yield Path(path)


@pytest.mark.parametrize(("mode", "waiting"), [("cdi", 1), ("environment", 3)])
async def test_each_pod_is_asked_for_once_and_has_its_card(
    cluster: Target, node: BenchNode, folder: Path, mode: Mode, waiting: int
) -> None:
    found = await site.measure(cluster.kubeconfig_path(), folder, node, mode, waiting=waiting, idle_s=0.1)
    assert found.calls.wrong == []
    assert (len(found.calls.allocate_ms), len(found.calls.pre_start_ms)) == (PODS, PODS)
    assert min(found.calls.allocate_ms + found.calls.pre_start_ms) > 0
    assert found.resident_mib > 1


async def test_a_container_on_another_card_and_a_refused_call_are_named(
    cluster: Target, node: BenchNode, folder: Path
) -> None:
    first, second = node.pods[:2]
    elsewhere = dataclasses.replace(first, card=first.card + 1)
    short = dataclasses.replace(second, ids=second.ids[1:])
    other = dataclasses.replace(node, pods=[elsewhere, short, *node.pods[2:]])
    found = await site.measure(cluster.kubeconfig_path(), folder, other, "environment")
    on_another, refused = found.calls.wrong
    assert on_another.startswith(f"{first.name}: the environment has ('{first.card_uuid}', '{first.card_uuid}')")
    assert refused.startswith(f"{second.name}: cannot tell which container allocates 1 devices")


def test_a_document_of_another_card_is_told_from_the_right_one(tmp_path: Path) -> None:
    pod = BoundPod("n", "p", "uid-p", 1, ("u0",))
    edits = [container_edits(card) for card in range(2)]
    assert wrong_by(tmp_path, pod, edits[1]) == ""
    assert pods.uuid(0) in wrong_by(tmp_path, pod, edits[0])
    assert wrong_by(tmp_path, pod, {**edits[1], "mounts": edits[0]["mounts"] + edits[1]["mounts"]}) != ""


def container_edits(card: int) -> dict[str, list[Any]]:
    uuid = pods.uuid(card)
    env = [f"GPUSHARE_CARD_UUIDS={uuid}", "NVIDIA_VISIBLE_DEVICES=void"]
    return {"env": env, "mounts": [{"containerPath": f"/run/gpushare/cards/{uuid}"}]}


def wrong_by(folder: Path, pod: BoundPod, edits: dict[str, list[Any]]) -> str:
    device = "0123456789abcdef"
    (folder / f"gpushare-{device}.json").write_text(json.dumps({"devices": [{"containerEdits": edits}]}))
    answer = wire.ContainerAllocateResponse(cdi_devices=[wire.CDIDevice(name=spec.qualified(device))])
    return pods.wrong_by_cdi(pod, folder, answer)


def test_a_goal_is_reached_below_its_bound_and_missed_at_it() -> None:
    slow = dataclasses.replace(SAMPLE, resident_mib=110.0)
    assert "| Allocate, CDI, 5 pods | 3 | 2.00 | 4.00 | 4.0 | < 5: reached |" in report.calls_table([SAMPLE])
    assert "| 35.00 | 60.00 | 60.0 | < 50: **missed** |" in report.calls_table([SAMPLE])
    assert "| resident memory after that, MiB | 110 | < 110: **missed** |" in report.process_table([slow])
    assert "| CPU while idle, % of a core | 0.20 | < 0.5: reached |" in report.process_table([slow])
