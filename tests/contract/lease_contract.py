"""Leases, and how a client learns what has changed up to now."""

import pytest

from scheduler.kube.leases import LeaseSpec
from scheduler.kube.port import PODS, ApiConflict, ApiNotFound, Changed, Deleted, WantedLease, lease_kind
from tests.contract.following import following
from tests.contract.under_test import ClusterUnderTest

AT = "2026-11-22T12:00:00.000000Z"
OURS = LeaseSpec("one", 15, AT, AT, 0)
PATIENCE_S = 10.0


def wanted(namespace: str, version: str, spec: LeaseSpec = OURS, pods_version: str | None = None) -> WantedLease:
    return WantedLease(namespace=namespace, name="leads", version=version, spec=spec, pods_version=pods_version)


class LeaseContract:
    """What `port.Cluster.write_lease` and `last_change` do."""

    async def test_a_lease_is_made_renewed_and_given_up_and_the_watch_shows_each(
        self, under_test: ClusterUnderTest
    ) -> None:
        cluster, of = under_test.cluster, under_test.namespace
        given_up = LeaseSpec("", 1, AT, AT, 0)
        async with following(cluster, lease_kind(of, "leads"), of) as watch:
            assert (await watch.listed())[0] == {}
            first = await cluster.write_lease(wanted(of, ""), PATIENCE_S)
            second = await cluster.write_lease(wanted(of, first, given_up, "17"), PATIENCE_S)
            third = await cluster.write_lease(wanted(of, second), PATIENCE_S)
            seen = [await watch.next() for _ in range(3)]

        shown = [event.object for event in seen if isinstance(event, Changed)]
        assert [one.metadata.resource_version for one in shown] == [first, second, third]
        assert [(one.spec, one.pods_version) for one in shown] == [(OURS, None), (given_up, "17"), (OURS, None)]

    async def test_another_lease_is_not_shown(self, under_test: ClusterUnderTest) -> None:
        cluster, of = under_test.cluster, under_test.namespace
        await cluster.write_lease(wanted(of, ""), PATIENCE_S)
        async with following(cluster, lease_kind(of, "others"), of) as watch:
            assert (await watch.listed())[0] == {}

    async def test_of_two_that_write_one_wins(self, under_test: ClusterUnderTest) -> None:
        cluster, of = under_test.cluster, under_test.namespace
        first = await cluster.write_lease(wanted(of, ""), PATIENCE_S)
        with pytest.raises(ApiConflict):
            await cluster.write_lease(wanted(of, ""), PATIENCE_S)
        await cluster.write_lease(wanted(of, first, LeaseSpec("two", 15, AT, AT, 1)), PATIENCE_S)
        with pytest.raises(ApiConflict):
            await cluster.write_lease(wanted(of, first), PATIENCE_S)

    async def test_a_lease_that_is_gone_is_not_found(self, under_test: ClusterUnderTest) -> None:
        with pytest.raises(ApiNotFound):
            await under_test.cluster.write_lease(wanted(under_test.namespace, "1"), PATIENCE_S)

    async def test_the_last_change_is_that_of_a_pod_and_of_nothing_else(self, under_test: ClusterUnderTest) -> None:
        cluster, of = under_test.cluster, under_test.namespace
        async with following(cluster, PODS, of) as watch:
            _, since = await watch.listed()
            await cluster.write_lease(wanted(of, ""), PATIENCE_S)
            assert await cluster.last_change(PODS, since) == since

            await under_test.pod("p")
            await under_test.pod("q")
            events = [await watch.next() for _ in range(2)]
            await under_test.operator.delete_pod(of, "q", grace_s=0)
            while not isinstance(events[-1], Deleted):
                events.append(await watch.next())

        later = [event.object.metadata.resource_version for event in events if isinstance(event, Changed | Deleted)]
        assert await cluster.last_change(PODS, since) == later[-1]
        assert await cluster.last_change(PODS, later[0]) == later[-1]
        assert await cluster.last_change(PODS, later[-1]) == later[-1]
