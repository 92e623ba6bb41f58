"""Conditions of pods, nominations, deletions."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from scheduler.kube.objects import PodCondition, PodObject
from scheduler.kube.port import ApiConflict, ApiNotFound, Cluster, PodKey
from tests.contract.under_test import ClusterUnderTest, key_of

WAITS = PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
READY = PodCondition("Ready", "False", "ContainersNotReady", "")


def conditions(pod: PodObject) -> dict[str, PodCondition]:
    return {condition.type: condition for condition in pod.status.conditions}


Write: TypeAlias = Callable[[Cluster, PodKey], Awaitable[None]]
writes_about_one_pod = pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda cluster, key: cluster.set_pod_condition(key, WAITS), id="condition"),
        pytest.param(lambda cluster, key: cluster.set_nominated_node(key, "node-a"), id="nomination"),
        pytest.param(lambda cluster, key: cluster.delete_pod(key), id="deletion"),
    ],
)


class StatusContract:
    """What `port.Cluster.set_pod_condition`, `set_nominated_node` and `delete_pod` do."""

    async def test_a_condition_is_added_and_the_others_stay(self, under_test: ClusterUnderTest) -> None:
        key = key_of(await under_test.pod())
        for condition in (READY, WAITS):
            await under_test.cluster.set_pod_condition(key, condition)

        assert conditions(await under_test.read()) == {"Ready": READY, "PodScheduled": WAITS}

    async def test_a_condition_takes_the_place_of_the_whole_one_of_its_type(self, under_test: ClusterUnderTest) -> None:
        key = key_of(await under_test.pod())
        await under_test.cluster.set_pod_condition(key, WAITS)

        await under_test.cluster.set_pod_condition(key, PodCondition("PodScheduled", "True"))

        assert conditions(await under_test.read()) == {"PodScheduled": PodCondition("PodScheduled", "True")}

    async def test_the_last_work_of_a_scheduler_is_that_of_its_pods(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()
        name = pod.spec.scheduler_name
        before = await under_test.cluster.last_scheduled("never-was")
        await under_test.cluster.set_pod_condition(key_of(pod), WAITS)

        last = await under_test.cluster.last_scheduled(name)

        assert (before.moment, before.version) == ("", "0")
        assert last.moment >= pod.metadata.creation_timestamp
        assert int(last.version) >= int((await under_test.read()).metadata.resource_version)

    async def test_a_nomination_is_written_and_taken_away(self, under_test: ClusterUnderTest) -> None:
        key = key_of(await under_test.pod())
        await under_test.cluster.set_pod_condition(key, WAITS)
        await under_test.cluster.set_nominated_node(key, "node-a")
        written = await under_test.read()
        await under_test.cluster.set_nominated_node(key, "")

        assert written.status.nominated_node_name == "node-a"
        assert (await under_test.read()).status.nominated_node_name == ""
        assert conditions(written) == {"PodScheduled": WAITS}

    async def test_a_deleted_pod_is_gone_or_going(self, under_test: ClusterUnderTest) -> None:
        key = key_of(await under_test.pod())

        await under_test.cluster.delete_pod(key)

        found = await under_test.cluster.pod(key.namespace, key.name)
        assert found is None or found.metadata.deletion_timestamp

    @writes_about_one_pod
    async def test_a_write_about_another_uid_is_a_conflict(self, under_test: ClusterUnderTest, write: Write) -> None:
        pod = await under_test.pod()
        other = PodKey(under_test.namespace, "p", "00000000-0000-0000-0000-000000000000")

        with pytest.raises(ApiConflict):
            await write(under_test.cluster, other)

        assert await under_test.read() == pod

    @writes_about_one_pod
    async def test_a_write_about_a_pod_that_is_gone_is_not_found(
        self, under_test: ClusterUnderTest, write: Write
    ) -> None:
        with pytest.raises(ApiNotFound):
            await write(under_test.cluster, PodKey(under_test.namespace, "nobody", "u"))
