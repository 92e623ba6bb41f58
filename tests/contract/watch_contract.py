"""Lists and watches."""

import asyncio
from itertools import pairwise

from scheduler.kube.port import CONFIG_MAPS, NAMESPACES, NODES, PODS, Changed, Deleted, WatchExpired
from tests.contract.following import following
from tests.contract.under_test import ClusterUnderTest, node_manifest, pod_manifest


class WatchContract:
    """What `port.Cluster.watch` tells, and in which order."""

    async def test_a_list_comes_first_and_then_the_changes_in_their_order(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        await under_test.pod("a")
        await under_test.pod("b")
        async with following(under_test.cluster, PODS, namespace) as watch:
            listed, _ = await watch.listed()
            await under_test.pod("c")
            await operator.annotate_pod(namespace, "a", {"k": "v"})
            await operator.delete_pod(namespace, "b")

            assert sorted(listed) == ["a", "b"]
            assert await watch.told(4) == ["Changed c", "Changed a", "Changed b", "Deleted b"]

    async def test_a_watch_from_a_version_has_no_gap_and_no_repetition(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        await under_test.pod("a")
        async with following(under_test.cluster, PODS, namespace) as watch:
            _, since = await watch.listed()
        await operator.annotate_pod(namespace, "a", {"n": "1"})
        await under_test.pod("b")
        await operator.delete_pod(namespace, "a")

        async with following(under_test.cluster, PODS, namespace, since) as watch:
            first = await watch.next()
            assert isinstance(first, Changed)
            assert first.object.metadata.annotations == {"n": "1"}
            assert await watch.told(3) == ["Changed b", "Changed a", "Deleted a"]
        async with following(under_test.cluster, PODS, namespace, first.object.metadata.resource_version) as watch:
            assert await watch.told(3) == ["Changed b", "Changed a", "Deleted a"]

    async def test_versions_rise_from_event_to_event(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        async with following(under_test.cluster, PODS, namespace) as watch:
            _, since = await watch.listed()
            for name in "ab":
                await under_test.pod(name)
            await operator.delete_pod(namespace, "a")
            events = [await watch.next() for _ in range(4)]

        seen = [int(e.object.metadata.resource_version) for e in events if isinstance(e, Changed | Deleted)]
        assert len(seen) == 4
        assert all(earlier < later for earlier, later in pairwise([int(since), *seen]))

    async def test_a_deleted_object_comes_with_its_last_state(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        pod = await under_test.pod()
        async with following(under_test.cluster, PODS, namespace, pod.metadata.resource_version) as watch:
            await operator.annotate_pod(namespace, "p", {"last": "word"})
            await operator.delete_pod(namespace, "p")
            events = [await watch.next() for _ in range(3)]
            event = events[-1]

        assert isinstance(event, Deleted)
        assert event.object.metadata.deletion_timestamp != ""
        assert event.object.metadata.annotations == {"last": "word"}
        assert event.object.metadata.uid == pod.metadata.uid

    async def test_a_pod_that_fails_is_deleted_as_it_was_before(self, under_test: ClusterUnderTest) -> None:
        """The selector hides the new state, so only a read tells how the pod ended."""
        operator, namespace = under_test.operator, under_test.namespace
        pod = await under_test.pod(nodeName=f"{namespace}-n")
        async with following(under_test.cluster, PODS, namespace, pod.metadata.resource_version) as watch:
            await operator.set_phase(namespace, "p", "Failed", reason="OutOfcpu")
            event = await watch.next()

        after = await under_test.read()
        assert isinstance(event, Deleted)
        assert (event.object.status.phase, event.object.status.reason) == ("Pending", "")
        assert event.object.metadata.resource_version == after.metadata.resource_version
        assert (after.status.phase, after.status.reason) == ("Failed", "OutOfcpu")

    async def test_a_finished_pod_causes_no_more_events(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        pod = await under_test.pod()
        await operator.set_phase(namespace, "p", "Succeeded")
        await operator.annotate_pod(namespace, "p", {"late": "1"})
        async with following(under_test.cluster, PODS, namespace) as watch:
            listed, _ = await watch.listed()
        await operator.delete_pod(namespace, "p")
        await under_test.pod("marker")

        async with following(under_test.cluster, PODS, namespace, pod.metadata.resource_version) as watch:
            assert await watch.told(2) == ["Deleted p", "Changed marker"]
        assert listed == {}

    async def test_a_pod_on_a_node_is_changed_by_its_deletion_and_deleted_by_its_end(
        self, under_test: ClusterUnderTest
    ) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        pod = await under_test.pod(nodeName=f"{namespace}-n")
        async with following(under_test.cluster, PODS, namespace, pod.metadata.resource_version) as watch:
            await operator.delete_pod(namespace, "p", grace_s=30)
            terminating = await watch.next()
            await operator.delete_pod(namespace, "p", grace_s=0)

            assert isinstance(terminating, Changed)
            assert terminating.object.metadata.deletion_timestamp != ""
            assert await watch.told(2) == ["Changed p", "Deleted p"]

    async def test_batches_stay_small_and_a_large_list_is_complete(self, under_test: ClusterUnderTest) -> None:
        names = [f"p{number:03}" for number in range(300)]
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(under_test.pod(name))

        async with following(under_test.cluster, PODS, under_test.namespace) as watch:
            listed, _ = await watch.listed()

        assert sorted(listed) == names
        assert 1 <= watch.largest_batch <= 256

    async def test_a_very_old_version_has_expired_or_misses_nothing(self, under_test: ClusterUnderTest) -> None:
        """How far back a server remembers is its own affair; but what it tells from there has to be all of it."""
        for name in "abc":
            await under_test.pod(name)
        async with following(under_test.cluster, PODS, under_test.namespace, since="1") as watch:
            try:
                told = await watch.told(3)
            except WatchExpired:
                return
        assert told == ["Changed a", "Changed b", "Changed c"]

    async def test_node_changes_are_delivered(self, under_test: ClusterUnderTest) -> None:
        operator, name = under_test.operator, f"{under_test.namespace}-n"
        await operator.create_node(node_manifest(name, {"zone": "a"}))
        async with following(under_test.cluster, NODES, under_test.namespace) as watch:
            listed, _ = await watch.listed()
            await operator.label_node(name, {"zone": "b"})
            relabelled = await watch.next()
            await operator.delete_node(name)

            assert isinstance(relabelled, Changed)
            assert (relabelled.object.metadata.labels or {})["zone"] == "b"
            assert await watch.told(1) == [f"Deleted {name}"]
        assert listed[name].metadata.labels == {"zone": "a"}

    async def test_a_node_allows_what_it_has_unless_it_says_otherwise(self, under_test: ClusterUnderTest) -> None:
        name = f"{under_test.namespace}-n"
        await under_test.operator.create_node(node_manifest(name))
        async with following(under_test.cluster, NODES, under_test.namespace) as watch:
            listed, _ = await watch.listed()

        assert listed[name].status.allocatable == listed[name].status.capacity == {"cpu": "8", "example.com/gpu": "2"}

    async def test_config_maps_of_kube_system_are_delivered_and_no_others(self, under_test: ClusterUnderTest) -> None:
        operator, namespace = under_test.operator, under_test.namespace
        async with following(under_test.cluster, CONFIG_MAPS, namespace) as watch:
            await watch.listed()
            await operator.set_config_map(namespace, "elsewhere", {})
            await operator.set_config_map("kube-system", f"{namespace}-here", {"gpus": "0"})
            await operator.set_config_map("kube-system", f"{namespace}-here", {"gpus": "0,1"})
            told = [await watch.next(), await watch.next()]

        assert [e.object.data for e in told if isinstance(e, Changed)] == [{"gpus": "0"}, {"gpus": "0,1"}]

    async def test_namespaces_are_listed_with_the_label_of_their_name(self, under_test: ClusterUnderTest) -> None:
        async with following(under_test.cluster, NAMESPACES, under_test.namespace) as watch:
            listed, _ = await watch.listed()

        labels = listed[under_test.namespace].metadata.labels or {}
        assert labels["kubernetes.io/metadata.name"] == under_test.namespace

    async def test_the_server_fills_in_what_a_pod_leaves_out(self, under_test: ClusterUnderTest) -> None:
        manifest = pod_manifest(under_test.namespace, "p")
        del manifest["spec"]["schedulerName"]
        await under_test.operator.create_pod(manifest)

        pod = await under_test.read()

        assert pod.metadata.uid != ""
        assert pod.metadata.creation_timestamp.endswith("Z")
        assert (pod.spec.scheduler_name, pod.status.phase) == ("default-scheduler", "Pending")
        resources = pod.spec.containers[0].resources
        assert resources is not None
        assert resources.requests == resources.limits == {"example.com/gpu": "1"}
        assert [(t.key, t.operator, t.effect) for t in pod.spec.tolerations] == [
            ("node.kubernetes.io/not-ready", "Exists", "NoExecute"),
            ("node.kubernetes.io/unreachable", "Exists", "NoExecute"),
        ]

    async def test_a_gated_pod_says_so_in_its_condition(self, under_test: ClusterUnderTest) -> None:
        pod = await under_test.pod(schedulingGates=[{"name": "example.com/wait"}])

        conditions = [(c.type, c.status, c.reason) for c in pod.status.conditions]
        assert conditions == [("PodScheduled", "False", "SchedulingGated")]

    async def test_a_pod_that_does_not_exist_is_none(self, under_test: ClusterUnderTest) -> None:
        assert await under_test.cluster.pod(under_test.namespace, "nobody") is None
