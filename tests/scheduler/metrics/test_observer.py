"""Log lines about connectivity: one for the server as a whole, one for each missing right."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.kube import port
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.process.clock import Clock
from tests.support.builders import cluster

KINDS: tuple[port.Kind[Any], ...] = (port.PODS, port.NODES, port.NAMESPACES, port.CONFIG_MAPS)
SILENT = port.ApiSilent("connection refused")


@pytest.fixture
def telemetry() -> ServiceObserver:
    return ServiceObserver(Metrics(cluster(), dict, per_card=False), Clock())


def said(telemetry: ServiceObserver, error: port.ApiError | None) -> Sequence[Mapping[str, Any]]:
    """Log lines after every watch gets this error, one after another."""
    with capture_logs() as lines:
        for kind in KINDS:
            telemetry.watch_trouble(kind, error)
    return lines


def events(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


@pytest.mark.parametrize(
    ("error", "event", "advice"),
    [
        pytest.param(SILENT, "api.unreachable", "check the server's address", id="unreachable"),
        pytest.param(
            port.ApiForbidden("Unauthorized", 401), "api.unauthorized", "renew the token", id="no credentials"
        ),
    ],
)
def test_an_outage_of_all_watches_is_logged_once_with_advice(
    telemetry: ServiceObserver, error: port.ApiError, event: str, advice: str
) -> None:
    (line,) = said(telemetry, error)

    assert (line["event"], line["reason"]) == (event, error.message)
    assert advice in line["hint"]


def test_an_outage_is_logged_again_when_its_reason_changes_and_when_it_ends(telemetry: ServiceObserver) -> None:
    assert events(said(telemetry, SILENT)) == ["api.unreachable"]
    assert events(said(telemetry, SILENT)) == []
    assert events(said(telemetry, port.ApiSilent("no answer within 30 s"))) == ["api.unreachable"]

    assert events(said(telemetry, None)) == ["api.reachable"]
    assert events(said(telemetry, SILENT)) == ["api.unreachable"]


def test_a_missing_right_is_logged_for_each_kind(telemetry: ServiceObserver) -> None:
    lines = said(telemetry, port.ApiForbidden("pods is forbidden", 403))

    assert events(lines) == ["watch.forbidden"] * 4
    assert [line["kind"] in line["hint"] for line in lines] == [True] * 4
    assert events(said(telemetry, None)) == ["watch.recovered"] * 4


def test_a_server_that_comes_back_and_forbids_is_reachable(telemetry: ServiceObserver) -> None:
    said(telemetry, SILENT)

    lines = said(telemetry, port.ApiForbidden("forbidden", 403))

    assert sorted(events(lines)) == ["api.reachable", *["watch.forbidden"] * 4]


def test_a_server_failure_is_logged_with_its_status(telemetry: ServiceObserver) -> None:
    assert {(line["event"], line["status"]) for line in said(telemetry, port.ApiFailed("etcd is away", 500))} == {
        ("watch.failed", 500)
    }
