"""What is counted and timed of the kubelet's calls."""

import asyncio

import pytest

from deviceplugin.kubelet.server import CallRejected, ContainerResponse
from deviceplugin.report.metrics import MeasuredPlugin, NodeMetrics


class Plugin:
    """Answers what it is told to; waits at Allocate while `gate` is closed."""

    def __init__(self, refusal: CallRejected | None = None) -> None:
        self.refusal = refusal
        self.gate = asyncio.Event()

    async def registering(self) -> None:
        pass

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        await self.gate.wait()
        if self.refusal:
            raise self.refusal
        return ContainerResponse(environment={"N": str(len(ids))})

    async def pre_start(self, ids: frozenset[str]) -> None:
        assert ids


def sample(metrics: NodeMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"gpushare_device_plugin_{name}", labels)


async def test_an_allocate_is_known_to_be_under_way_and_timed_in_the_end() -> None:
    plugin, metrics = Plugin(), NodeMetrics("n", 1024, dcgm=False)
    measured = MeasuredPlugin(plugin, metrics)
    call = asyncio.create_task(measured.allocate(frozenset({"u0", "u1"})))
    await asyncio.sleep(0)
    assert measured.allocating == 1
    plugin.gate.set()
    assert (await call).environment == {"N": "2"}
    assert measured.allocating == 0
    assert sample(metrics, "call_duration_seconds_count", call="Allocate") == 1


async def test_a_refusal_is_counted_under_its_kind_and_passed_on() -> None:
    plugin, metrics = Plugin(CallRejected("message", "NotIdentified")), NodeMetrics("n", 1024, dcgm=False)
    plugin.gate.set()
    measured = MeasuredPlugin(plugin, metrics)
    with pytest.raises(CallRejected, match="message"):
        await measured.allocate(frozenset({"u0"}))
    assert measured.allocating == 0
    assert sample(metrics, "refusals_total", call="Allocate", reason="NotIdentified") == 1
    assert sample(metrics, "call_duration_seconds_count", call="Allocate") == 1


async def test_the_start_of_a_container_is_timed() -> None:
    metrics = NodeMetrics("n", 1024, dcgm=False)
    measured = MeasuredPlugin(Plugin(), metrics)
    await measured.registering()
    await measured.pre_start(frozenset({"u0"}))
    assert sample(metrics, "call_duration_seconds_count", call="PreStartContainer") == 1
