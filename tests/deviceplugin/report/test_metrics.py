"""What a scrape shows: names and labels that dcgm-exporter has, nothing of what is gone, and the kubelet's calls."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, DriverCard, Xid
from deviceplugin.kubelet.server import CallRejected, ContainerResponse
from deviceplugin.report.metrics import MeasuredPlugin, NodeMetrics
from deviceplugin.report.status import ShownCard, ShownContainer

GIB = 2**30
CARD = DriverCard(index=0, uuid="GPU-a", model="Tesla T4", memory_mib=15360, minor=3, pci="0000:af:00.0")
OTHER = DriverCard(index=1, uuid="GPU-b", model="Tesla T4", memory_mib=15360)
READING = CardReading(used_mib=4000, utilisation=55, temperature_c=60, power_w=70.5)
LABELS = {
    "gpu": "0",
    "UUID": "GPU-a",
    "pci_bus_id": "00000000:AF:00.0",
    "device": "nvidia0",
    "modelName": "Tesla T4",
    "Hostname": "node-1",
}


def shown(card: DriverCard = CARD, reading: CardReading | None = READING, health: Health = Health.HEALTHY) -> ShownCard:
    return ShownCard(card, 15, 6, health, reading)


def metrics(*, dcgm: bool = True) -> NodeMetrics:
    return NodeMetrics("node-1", 1024, dcgm=dcgm)


def scraped(of: NodeMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Name without our prefix -> its samples."""
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(of.registry).decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("gpushare_device_plugin_")
            samples.setdefault(name, []).append((sample.labels, sample.value))
    return samples


def test_readings_have_the_names_and_labels_of_dcgm_exporter() -> None:
    of = metrics()
    of.show_cards([shown()])
    found = {name: samples for name, samples in scraped(of).items() if name.startswith("DCGM")}
    assert found == {
        "DCGM_FI_DEV_GPU_UTIL": [(LABELS, 55)],
        "DCGM_FI_DEV_FB_USED": [(LABELS, 4000)],
        "DCGM_FI_DEV_FB_FREE": [(LABELS, 11360)],
        "DCGM_FI_DEV_GPU_TEMP": [(LABELS, 60)],
        "DCGM_FI_DEV_POWER_USAGE": [(LABELS, 70.5)],
        "DCGM_FI_DEV_XID_ERRORS": [(LABELS, 0)],
    }


def test_beside_dcgm_exporter_none_of_its_names_is_used() -> None:
    of = metrics(dcgm=False)
    of.show_cards([shown()])
    found = scraped(of)
    assert not [name for name in found if name.startswith("DCGM")]
    assert found["card_memory_used_bytes"] == [(LABELS, 4000 * 2**20)]


def test_exactly_one_health_is_1() -> None:
    of = metrics()
    of.show_cards([shown(health=Health.UNHEALTHY)])
    states = {labels["health"]: value for labels, value in scraped(of)["card_health"]}
    assert states == {"healthy": 0, "suspect": 0, "unhealthy": 1, "cordoned": 0}


def test_a_card_has_one_series_that_names_what_enforces_shares_of_it() -> None:
    of = metrics()
    of.show_cards([replace(shown(), isolation="driver"), shown(OTHER)])
    assert [(labels["UUID"], labels["isolation"], value) for labels, value in scraped(of)["card_isolation"]] == [
        (CARD.uuid, "driver", 1.0),
        ("GPU-b", "advisory", 1.0),
    ]


def test_what_the_driver_does_not_report_has_no_series() -> None:
    of = metrics()
    of.show_cards([shown(CARD, CardReading(used_mib=10)), shown(OTHER, None)])
    found = scraped(of)
    assert [labels["UUID"] for labels, _ in found["DCGM_FI_DEV_FB_USED"]] == ["GPU-a"]
    assert [labels["UUID"] for labels, _ in found["card_memory_total_bytes"]] == ["GPU-a", "GPU-b"]
    assert not found.keys() & {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"}


def test_containers_have_what_they_asked_and_use_on_each_card() -> None:
    of = metrics()
    of.show_containers(
        [
            ShownContainer(card=CARD, namespace="ns", pod="p", container="c", requested_units=3, used_mib=2048),
            ShownContainer(card=OTHER, namespace="ns", pod="p", container="c", requested_units=3),
        ],
    )
    found, container = scraped(of), {"namespace": "ns", "pod": "p", "container": "c"}
    assert found["container_memory_requested_bytes"][0] == (LABELS | container, 3 * GIB)
    assert len(found["container_memory_requested_bytes"]) == 2
    assert found["container_memory_used_bytes"] == [(LABELS | container, 2 * GIB)]


def test_series_of_what_is_gone_disappear() -> None:
    of = metrics()
    of.show_cards([shown(), shown(OTHER)])
    of.show_containers([ShownContainer(card=OTHER, namespace="ns", pod="p", container="c", requested_units=3)])
    of.xid(Xid("GPU-b", 79))
    assert "GPU-b" in generate_latest(of.registry).decode()

    of.show_cards([shown()])
    of.show_containers([])
    assert "GPU-b" not in generate_latest(of.registry).decode()


def test_xids_are_counted_by_card_and_number() -> None:
    of = metrics()
    of.show_cards([shown()])
    for uuid, number in (("GPU-a", 31), ("GPU-a", 79), ("GPU-a", 31), ("", 13)):
        of.xid(Xid(uuid, number))
    found = scraped(of)
    assert {(labels["UUID"], labels["xid"]): value for labels, value in found["xids_total"]} == {
        ("", "13"): 1,
        ("GPU-a", "31"): 2,
        ("GPU-a", "79"): 1,
    }
    assert found["DCGM_FI_DEV_XID_ERRORS"] == [(LABELS, 31)]


def test_registrations_are_counted_and_their_end_is_shown() -> None:
    of = metrics()
    of.registered()
    of.unregistered()
    of.registered()
    assert scraped(of)["registrations_total"] == [({}, 2)]
    assert scraped(of)["registered"] == [({}, 1)]
    of.unregistered()
    assert scraped(of)["registered"] == [({}, 0)]


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
