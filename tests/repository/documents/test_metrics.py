"""What both programs show is what they declare, and so what docs/metrics.md says."""

import re

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, DriverCard, Xid
from deviceplugin.isolation.mps_cards import MpsMetrics
from deviceplugin.report import series as of_the_plugin
from deviceplugin.report.metrics import NodeMetrics
from deviceplugin.report.status import ShownCard, ShownContainer
from scheduler.dispatch.status import WaitingStatus
from scheduler.dispatch.waiting_series import waiting_text
from scheduler.kube import objects
from scheduler.metrics import series as of_the_scheduler
from scheduler.metrics.metrics import Metrics
from scheduler.process import build_info
from scheduler.process.contact import Contact, ContactCollector
from scheduler.process.series import Series
from tests.support.builders import bound, cluster, pod
from tests.support.documents.metrics_document import DEVICE_PLUGIN, SCHEDULER
from tests.support.placing import on_card


def scheduler_text() -> str:
    tables = cluster(a=[16, 8])
    tables.add(bound(pod("p", 4), "a", on_card(0, 4)))
    tables.rejections.note(bound(pod("q", 4), "a", on_card(0, 4)), "OutOfcpu", 0.0)
    metrics = Metrics(tables, lambda: {"active": 2}, per_card=True)
    metrics.replica.follow("gpushare-scheduler", lambda: True)
    build_info.show(metrics.registry)
    metrics.registry.register(ContactCollector(of_the_scheduler.PREFIX, Contact(["pods"], lambda: 0.0)))
    latest, waits = objects.PodCondition("PodScheduled", "False"), pod("w", 4).key
    status = WaitingStatus(pod=waits, created="2026-01-01T00:00:00Z", latest=latest, shown=None, rules=("GpuShare",))
    metrics.waiting = lambda: waiting_text([status], {waits.uid}, 1767225660.0)
    metrics.attempts.labels("scheduled", "x").inc()
    metrics.sli_s.labels("1").observe(1.0)
    metrics.problems.labels("Pod").inc()
    metrics.relists.labels("pods").inc()
    metrics.reservations.labels("kept").inc()
    return b"".join(metrics.scrape()).decode()


def plugin_text() -> str:
    card = DriverCard(index=0, uuid="GPU-0", model="SIM", memory_mib=1024)
    metrics = NodeMetrics("n1", 1024, dcgm=True)
    build_info.show(metrics.registry)
    metrics.registry.register(ContactCollector(of_the_plugin.PREFIX, Contact(["pods"], lambda: 0.0)))
    reading = CardReading(used_mib=0, processes=(), utilisation=0, temperature_c=40, power_w=60.0)
    metrics.show_cards([ShownCard(card, 1, 0, Health.HEALTHY, reading)])
    one = ShownContainer(card=card, namespace="ns", pod="p", container="c", requested_units=1, used_mib=1, exact=True)
    metrics.show_containers([one])
    metrics.show_drift({"uses-more": 1})
    metrics.xid(Xid("GPU-0", 31))
    metrics.refused("Allocate", "NoAllocation", 0.1)
    # There where isolation is by MPS.
    daemons = MpsMetrics(metrics.registry)
    daemons.ready.labels("GPU-0").set(1)
    daemons.ends.labels("GPU-0").inc()
    return generate_latest(metrics.registry).decode()


def families(text: str) -> dict[str, Metric]:
    """By name as declared."""
    found = text_string_to_metric_families(text)
    return {f"{one.name}_total" if one.type == "counter" else one.name: one for one in found}


PROGRAMS = [
    pytest.param(scheduler_text(), SCHEDULER, id="scheduler"),
    pytest.param(plugin_text(), DEVICE_PLUGIN, id="device plugin"),
]


@pytest.mark.parametrize(("text", "declared"), PROGRAMS)
def test_what_is_shown_is_what_is_declared(text: str, declared: tuple[Series, ...]) -> None:
    shown = families(text)
    assert shown.keys() == {one.name for one in declared}
    for one in declared:
        family = shown[one.name]
        assert (family.type, family.documentation) == (one.kind, one.says), one.name
        assert family.samples, one.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels == set(one.label_names), one.name


@pytest.mark.parametrize(("text", "declared"), PROGRAMS)
def test_no_series_says_when_another_one_began(text: str, declared: tuple[Series, ...]) -> None:
    del declared
    assert "_created" not in text


@pytest.mark.parametrize("one", [*SCHEDULER, *DEVICE_PLUGIN], ids=lambda one: one.name)
def test_a_name_ends_in_its_unit_and_a_counter_in_total(one: Series) -> None:
    assert one.name.endswith("_total") is (one.kind == "counter")
    assert not re.search(r"_(units|mib|ms|milliseconds|share|percent)(_|$)", one.name)
    assert one.says.rstrip().endswith(".")
    assert all(label.bound for label in one.labels)


@pytest.mark.parametrize("one", SCHEDULER, ids=lambda one: one.name)
def test_a_name_of_kube_schedulers_is_compared_with_it(one: Series) -> None:
    assert bool(one.alike) is not one.name.startswith("gpushare_")
