"""The one request that places a pod."""

import pytest

from scheduler.kube import objects
from scheduler.kube.port import PODS, ApiConflict, ApiNotFound, Binding, Changed, PodKey
from tests.contract.following import following
from tests.contract.under_test import ClusterUnderTest, key_of, pod_manifest

CARDS = {"gpushare/cards": '{"0":"GPU-a"}', "scheduler.framework.gpushare.allocation": '{"0":{"0":3}}'}


async def bind(under_test: ClusterUnderTest, pod: objects.PodObject, node: str = "n", uid: str | None = None) -> None:
    key = key_of(pod)
    key = key if uid is None else PodKey(key.namespace, key.name, uid)
    await under_test.cluster.bind(Binding(key, f"{under_test.namespace}-{node}", CARDS), 10.0)


def scheduled(pod: objects.PodObject) -> list[tuple[str, str, str]]:
    return [(c.status, c.reason, c.message) for c in pod.status.conditions if c.type == "PodScheduled"]


class BindingContract:
    """What `port.Cluster.bind` does to a pod, and when it refuses."""

    async def test_one_watch_event_carries_the_node_and_all_annotations(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()
        async with following(under_test.cluster, PODS, under_test.namespace, pod.metadata.resource_version) as watch:
            await bind(under_test, pod)
            await under_test.pod("marker")
            event = await watch.next()

            assert isinstance(event, Changed)
            assert event.object.spec.node_name == f"{under_test.namespace}-n"
            assert event.object.metadata.annotations == CARDS
            assert scheduled(event.object) == [("True", "", "")]
            assert await watch.told(1) == ["Changed marker"]

    async def test_a_bound_pod_reads_as_bound(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()

        await bind(under_test, pod)

        read = await under_test.read()
        assert (read.spec.node_name, read.metadata.annotations) == (f"{under_test.namespace}-n", CARDS)
        assert read.metadata.uid == pod.metadata.uid

    async def test_annotations_sent_overwrite_and_the_others_stay(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()
        old = {"gpushare/cards": "old", "mine": "kept"}
        await under_test.operator.annotate_pod(under_test.namespace, "p", old)

        await bind(under_test, pod)

        assert (await under_test.read()).metadata.annotations == {**CARDS, "mine": "kept"}

    async def test_binding_ends_what_the_condition_said_before(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()
        unschedulable = objects.PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")
        await under_test.cluster.set_pod_condition(key_of(pod), unschedulable)

        await bind(under_test, pod)

        assert scheduled(await under_test.read()) == [("True", "", "")]

    @pytest.mark.parametrize("node", ["n", "other"])
    async def test_a_pod_that_is_bound_is_not_bound_again_to_any_node(
        self, under_test: ClusterUnderTest, node: str
    ) -> None:
        pod = await under_test.pod()
        await bind(under_test, pod)
        bound = await under_test.read()

        with pytest.raises(ApiConflict, match=f'pod p is already assigned to node "{under_test.namespace}-n"') as said:
            await bind(under_test, pod, node)

        assert said.value.status == 409
        assert await under_test.read() == bound

    async def test_another_uid_is_a_conflict(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()

        with pytest.raises(ApiConflict, match="UID in precondition"):
            await bind(under_test, pod, uid="00000000-0000-0000-0000-000000000000")

        assert await under_test.read() == pod

    async def test_a_recreated_pod_is_not_the_pod_that_was_meant(self, under_test: ClusterUnderTest) -> None:
        old = await under_test.pod()
        await under_test.operator.delete_pod(under_test.namespace, "p")
        await under_test.pod()

        with pytest.raises(ApiConflict, match="UID in precondition"):
            await bind(under_test, old)

    async def test_a_pod_that_is_being_deleted_is_a_conflict(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        manifest = pod_manifest(namespace, "p")
        manifest["metadata"]["finalizers"] = ["example.com/stay"]
        pod = await operator.create_pod(manifest)
        await operator.delete_pod(namespace, "p")

        try:
            with pytest.raises(ApiConflict, match="pod p is being deleted, cannot be assigned to a host"):
                await bind(under_test, pod)
        finally:
            await operator.release_pod(namespace, "p")
        assert await under_test.cluster.pod(namespace, "p") is None

    async def test_a_gated_pod_is_a_conflict(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod(schedulingGates=[{"name": "example.com/wait"}])

        with pytest.raises(ApiConflict, match=r"non-empty \.spec\.schedulingGates"):
            await bind(under_test, pod)

    async def test_a_pod_that_is_gone_is_not_found(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod()
        await under_test.operator.delete_pod(under_test.namespace, "p")

        with pytest.raises(ApiNotFound, match='pods "p" not found') as said:
            await bind(under_test, pod)

        assert said.value.status == 404
