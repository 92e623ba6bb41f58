"""A real kubelet that rejects a pod: the next one of its controller waits, says why, and has its turn again later."""

import asyncio
from typing import Final

from e2e.control_plane.admin import Admin, Json, done
from e2e.node.announced import allocatable
from e2e.node.node_pods import PODS, note_of, pod_seen, runs
from e2e.support.shared_node import SharedNode, pods, shared_pod, sharing

_OWNERS: Final = "/api/v1/namespaces/default/configmaps"
_REPLICA_SETS: Final = "/apis/apps/v1/namespaces/default/replicasets"
_LOOKED_AT_S: Final = 6.0
# Which the kubelet allows nobody unless it is told to.
_UNSAFE: Final = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}


def replica(name: str, owner: Json) -> Json:
    meta = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return shared_pod(name, [sharing(1)], metadata={"ownerReferences": [reference]}, securityContext=_UNSAFE)


def has_failed(found: Json) -> bool:
    return bool(found["status"].get("phase") == "Failed")


def says(found: Json) -> str:
    said = [one.get("message", "") for one in found["status"].get("conditions", []) if one["type"] == "PodScheduled"]
    return "".join(said)


async def test_a_node_that_rejects_a_pod_is_left_out_for_the_next_one_and_for_nobody_else(
    shared: SharedNode, on_node: Admin
) -> None:
    await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
    # What a garbage collector finds there; a ReplicaSet would have a controller of its own.
    owner = done(await on_node.post(_OWNERS, {"metadata": {"name": "web"}})).body
    async with pods(on_node, [replica("web-1", owner)]):
        first = await pod_seen(on_node, "web-1", has_failed)
        assert first["status"]["message"].startswith("Pod was rejected: ")
        told = await note_of(on_node, "RejectedByKubelet", "web-1", within_s=20.0)
        assert told.startswith(f"node {shared.node.name} rejected it (SysctlForbidden): ")
        assert told.endswith("; similar pods avoid the node for 10 s")

        async with pods(on_node, [replica("web-2", owner), shared_pod("other", [sharing(1)])]):
            # First: it waits for 10 s only, and the other may need longer to run.
            waiting = await pod_seen(on_node, "web-2", lambda pod: bool(says(pod)))
            assert "1 node(s) had rejected such a pod (SysctlForbidden)" in says(waiting)
            assert "nodeName" not in waiting["spec"]
            assert shared.mismatches(await runs(on_node, "other")) == []
            again = await pod_seen(on_node, "web-2", has_failed)
            assert again["status"]["reason"] == "SysctlForbidden"
    rejected = [line["pod"] for line in shared.scheduler.lines("pod.rejected_by_kubelet")]
    assert [name for name in rejected if name.startswith("default/web-")] == ["default/web-1", "default/web-2"]


async def test_a_replica_set_no_longer_makes_one_failed_pod_after_the_other(shared: SharedNode, on_node: Admin) -> None:
    await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
    labels = {"app": "stormy"}
    template = {"metadata": {"labels": labels}, "spec": shared_pod("", [sharing(1)], securityContext=_UNSAFE)["spec"]}
    wanted = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    await on_node.create(_REPLICA_SETS, {"metadata": {"name": "stormy"}, "spec": wanted})
    try:
        await asyncio.sleep(_LOOKED_AT_S)
        made = (await on_node.get(f"{PODS}?labelSelector=app%3Dstormy")).body["items"]
        failed = [one for one in made if has_failed(one)]
        print(f"{len(failed)} failed pods of one ReplicaSet in {_LOOKED_AT_S:g} s")  # noqa: T201 - for who runs it by itself
        # One at once, and one more where a busy machine makes 10 s of these 6 s.
        assert 1 <= len(failed) <= 2
        assert {one["status"]["reason"] for one in failed} == {"SysctlForbidden"}
    finally:
        await on_node.delete(f"{_REPLICA_SETS}/stormy", {"propagationPolicy": "Foreground"})
        async with asyncio.timeout(60.0):
            while (await on_node.get(f"{PODS}?labelSelector=app%3Dstormy")).body["items"]:  # noqa: ASYNC110 - of many
                await asyncio.sleep(0.2)
