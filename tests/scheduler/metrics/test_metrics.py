"""Metrics of a replica; only the leader exports those of the cluster."""

import pytest

from scheduler.metrics.metrics import Metrics
from tests.support.builders import cluster


def shown(metrics: Metrics) -> list[str]:
    return b"".join(metrics.scrape()).decode().splitlines()


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_replica_that_schedules_shows_the_cluster(*, leads: bool) -> None:
    metrics = Metrics(cluster(a=[16]), lambda: {"active": 0}, per_card=True)
    metrics.replica.follow("lease", lambda: leads)
    lines = shown(metrics)
    assert f"gpushare_scheduler_leads {leads:.1f}" in lines
    assert f'leader_election_master_status{{name="lease"}} {leads:.1f}' in lines
    of_cluster = (
        "gpushare_scheduler_node_",
        "gpushare_scheduler_card_",
        "gpushare_scheduler_namespace_",
        "scheduler_pend",
    )
    assert any(line.startswith(of_cluster) for line in lines) is leads


def test_a_replica_that_is_alone_leads_and_has_no_lease() -> None:
    lines = shown(Metrics(cluster(), dict, per_card=False))
    assert "gpushare_scheduler_leads 1.0" in lines
    assert not [line for line in lines if "leader_election" in line]


def test_readiness_is_that_of_the_moment() -> None:
    metrics, missing = Metrics(cluster(), dict, per_card=False), ["pods"]
    metrics.replica.ready = lambda: not missing
    assert "gpushare_scheduler_ready 0.0" in shown(metrics)
    missing.clear()
    assert "gpushare_scheduler_ready 1.0" in shown(metrics)
