"""Probes and metrics over real HTTP on loopback."""

import errno
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.metrics.metrics import Metrics
from scheduler.process.probes import serve
from scheduler.state.cards.booking import CardShare
from scheduler.state.nominations import Nominations
from tests.support.builders import bound, cluster, pod, wire_node
from tests.support.placing import on_card

# The kernel of the machine that runs the tests may have no IPv6 loopback.
GIB = 2**30
NEEDS_IPV6 = pytest.mark.skipif(not Path("/proc/sys/net/ipv6").exists(), reason="this machine has no IPv6")


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def served(metrics: Metrics, session: aiohttp.ClientSession, path: str, missing: str = "") -> tuple[int, str]:
    runner = await serve(("127.0.0.1", 0), metrics.scrape, ready=lambda: missing, alive=lambda: "")
    try:
        port = runner.addresses[0][1]
        async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()
    finally:
        await runner.cleanup()


def samples(text: str) -> dict[tuple[str, str], float]:
    """(name, label values) -> value."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def metrics_of(*, per_card: bool = False) -> Metrics:
    tables = cluster(a=[16, 8])
    tables.upsert_node(wire_node("plain"))
    tables.add(bound(pod("p", 4, annotations={"ALIYUN_COM_GPU_MEM_IDX": "1", "gpushare/unit-mib": "1024"}), "a"))
    return Metrics(tables, lambda: {"active": 2, "backoff": 0, "unschedulable": 5, "gated": 1}, per_card=per_card)


async def test_health_is_ok_and_readiness_says_what_is_missing(client: aiohttp.ClientSession) -> None:
    metrics = metrics_of()
    assert await served(metrics, client, "/healthz") == (200, "ok\n")
    assert await served(metrics, client, "/readyz") == (200, "ok\n")
    assert await served(metrics, client, "/readyz", "waiting for pods") == (503, "waiting for pods\n")


async def test_metrics_have_node_sums_and_a_histogram_of_the_cards(client: aiohttp.ClientSession) -> None:
    _, text = await served(metrics_of(), client, "/metrics")
    found = samples(text)
    assert found["gpushare_scheduler_node_memory_bytes", "a"] == 24 * GIB
    assert found["gpushare_scheduler_node_memory_booked_bytes", "a"] == 4 * GIB
    assert ("gpushare_scheduler_node_memory_bytes", "plain") not in found
    assert found["gpushare_scheduler_card_free_ratio_bucket", "0.5"] == 1
    assert found["gpushare_scheduler_card_free_ratio_count", ""] == 2
    assert found["scheduler_pending_pods", "unschedulable"] == 5


async def test_series_per_card_are_there_only_when_asked_for(client: aiohttp.ClientSession) -> None:
    _, without = await served(metrics_of(), client, "/metrics")
    _, with_cards = await served(metrics_of(per_card=True), client, "/metrics")
    assert "gpushare_scheduler_card_memory_bytes" not in without
    assert samples(with_cards)["gpushare_scheduler_card_memory_booked_bytes", "1,a,GPU-a-1"] == 4 * GIB


async def test_a_scrape_shows_what_is_true_at_its_time(client: aiohttp.ClientSession) -> None:
    tables = cluster(a=[16])
    metrics = Metrics(tables, dict, per_card=False)
    tables.add(bound(pod("p", 4, annotations={"ALIYUN_COM_GPU_MEM_IDX": "0", "gpushare/unit-mib": "1024"}), "a"))
    _, text = await served(metrics, client, "/metrics")
    assert samples(text)["gpushare_scheduler_node_memory_booked_bytes", "a"] == 4 * GIB


async def test_a_place_that_is_kept_is_not_booked_beside_its_victim(client: aiohttp.ClientSession) -> None:
    tables = cluster(a=[16])
    tables.add(bound(pod("victim", 16), "a", on_card(0, 16)))
    kept = Nominations(tables)
    preemptor = pod("urgent", 16, priority=5)
    kept.nominate(preemptor, "a", (CardShare(0, "GPU-a-0", 16),), ["uid-default-victim"])
    metrics = Metrics(tables, dict, per_card=True)

    _, shown = await served(metrics, client, "/metrics")
    with kept.seen_by(preemptor):
        _, hidden = await served(metrics, client, "/metrics")

    for text in (shown, hidden):
        assert samples(text)["gpushare_scheduler_node_memory_booked_bytes", "a"] == 16 * GIB
        assert samples(text)["gpushare_scheduler_card_memory_booked_bytes", "0,a,GPU-a-0"] == 16 * GIB


async def test_a_name_that_holds_anything_stays_one_label(client: aiohttp.ClientSession) -> None:
    tables = cluster(a=[16])
    slot = tables.cards.slots[0][0]
    tables.cards.slots[0][0] = replace(slot, card=replace(slot.card, uuid='GPU"\\\n# TYPE x gauge'))

    _, text = await served(Metrics(tables, dict, per_card=True), client, "/metrics")

    assert samples(text)["gpushare_scheduler_card_memory_bytes", '0,a,GPU"\\\n# TYPE x gauge'] == 16 * GIB


async def test_what_is_not_there_and_what_is_not_a_question(client: aiohttp.ClientSession) -> None:
    runner = await serve(("127.0.0.1", 0), metrics_of().scrape, ready=str, alive=str)
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with client.get(f"{url}/elsewhere") as answer:
        assert answer.status == 404
    async with client.post(f"{url}/metrics", data=b"x") as answer:
        assert answer.status == 405
    async with client.head(f"{url}/metrics") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=NEEDS_IPV6)])
async def test_without_a_host_both_families_are_served(client: aiohttp.ClientSession, host: str) -> None:
    runner = await serve(("", 0), metrics_of().scrape, ready=str, alive=str)
    try:
        async with client.get(f"http://{host}:{runner.addresses[0][1]}/healthz") as answer:
            assert answer.status == 200
    finally:
        await runner.cleanup()


async def test_without_ipv6_ipv4_is_served(client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ipv6(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", no_ipv6)
    runner = await serve(("", 0), metrics_of().scrape, ready=str, alive=str)
    try:
        async with client.get(f"http://127.0.0.1:{runner.addresses[0][1]}/healthz") as answer:
            assert answer.status == 200
    finally:
        await runner.cleanup()


async def test_a_port_that_is_taken_is_an_error_on_both_families() -> None:
    first = await serve(("", 0), metrics_of().scrape, ready=str, alive=str)
    try:
        with pytest.raises(OSError, match="in use"):
            await serve(("", first.addresses[0][1]), metrics_of().scrape, ready=str, alive=str)
    finally:
        await first.cleanup()
