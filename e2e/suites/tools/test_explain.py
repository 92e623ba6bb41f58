"""`explain` and `what-if`, and the policy about misspelt keys, on a real kube-apiserver with the scheduler at work."""

import json
import subprocess
import sys
from pathlib import Path

from config.protocol import names
from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import environment
from e2e.support import policy_site
from e2e.support.gpu_site import GpuSite, gpu_pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
UNKNOWN_KEYS = "gpushare-unknown-keys"


def asked(
    cluster: provider.Target, folder: Path, *arguments: str, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    file = kubeconfig or cluster.kubeconfig_path()
    command = [sys.executable, "-m", "scheduler.main", *arguments, "--kubeconfig", str(file)]
    return subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=60, check=False)


async def test_explain_says_what_the_scheduler_wrote_and_where_the_memory_is(
    site: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    await site.nodes(a=[16, 8], b=[8])
    await site.pod("holder", 6)
    await site.bound("holder")
    ran = asked(cluster, tmp_path, "explain", "holder", "-n", site.namespace)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"Pod {site.namespace}/holder is bound." in ran.stdout

    await site.pod("huge", 17)
    message = await site.unschedulable("huge")
    found = json.loads(asked(cluster, tmp_path, "explain", "huge", "-n", site.namespace, "-o", "json").stdout)
    assert found["message"] == message
    assert {one["pod"] for node in found["nearest"] for card in node["cards"] for one in card["pods"]} >= {
        f"{site.namespace}/holder"
    }
    missing = asked(cluster, tmp_path, "explain", "nobody", "-n", site.namespace)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"there is no pod nobody in namespace {site.namespace}" in missing.stderr


async def test_what_if_counts_what_the_scheduler_then_binds(
    site: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    await site.nodes(a=[16], b=[8])
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps({"kind": "Pod", **gpu_pod("serve", 7)}), encoding="utf-8")
    ran = asked(cluster, tmp_path, "what-if", "--replicas", "5", "-f", str(file), "-o", "json")
    answer = json.loads(ran.stdout)
    assert (answer["fit"], answer["replicas"]) == (3, 5)

    placed = []
    for number in range(3):
        await site.pod(f"serve-{number}", 7)
        placed.append((await site.bound(f"serve-{number}"))["spec"]["nodeName"])
    assert placed == [place["node"] for place in answer["places"]]
    await site.pod("next", 7)
    assert await site.unschedulable("next") == answer["next"]["message"]


async def test_a_preemption_is_foretold_and_told_while_it_is_under_way(
    site: GpuSite, cluster: provider.Target, admin: Admin, tmp_path: Path
) -> None:
    await site.nodes(a=[16], b=[16])
    for name in ("one", "two"):
        await site.pod(name, 16)
        await site.bound(name)
    urgent = gpu_pod("urgent", 15, priorityClassName="explain-urgent")
    file = tmp_path / "urgent.yaml"
    file.write_text(json.dumps({"kind": "Pod", **urgent}), encoding="utf-8")
    await admin.create(CLASSES, {"metadata": {"name": "explain-urgent"}, "value": 1000})
    try:
        foretold = json.loads(asked(cluster, tmp_path, "what-if", "-f", str(file), "-o", "json").stdout)
        await admin.create(site.pods_path, urgent)
        (victim,) = foretold["next"]["preemption"]["victims"]
        going = await site.seen(victim.partition("/")[2], lambda pod: "deletionTimestamp" in pod["metadata"])
        await site.seen("urgent", lambda pod: bool(pod["status"].get("nominatedNodeName")))
        found = json.loads(asked(cluster, tmp_path, "explain", f"{site.namespace}/urgent", "-o", "json").stdout)
        (terminating,) = found["nominated"]["terminating"]
        assert (found["nominated"]["node"], terminating["pod"]) == (going["spec"]["nodeName"], victim)
        # The deletion was requested when its condition was written, to the second or two.
        assert going["metadata"]["creationTimestamp"] <= terminating["since"] < going["metadata"]["deletionTimestamp"]
        assert found["preemption"] is None
        assert "Preemption is under way" in asked(cluster, tmp_path, "explain", f"{site.namespace}/urgent").stdout
    finally:
        await admin.delete(f"{CLASSES}/explain-urgent")


async def test_with_pods_and_nodes_alone_nothing_is_said_to_be_missing(
    site: GpuSite, control_plane: ControlPlane, admin: Admin, tmp_path: Path
) -> None:
    await site.nodes(a=[16])
    claims = f"/api/v1/namespaces/{site.namespace}/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await admin.create(claims, {"metadata": {"name": "checkpoints"}, "spec": {**claim, "storageClassName": "none"}})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    await site.pod("train", 3, volumes=volumes)
    kubeconfig = await reader_of_pods_and_nodes(admin, control_plane, site.namespace)
    try:
        ran = asked(control_plane, tmp_path, "explain", "pod/train", "-n", site.namespace, kubeconfig=kubeconfig)
        assert ran.returncode == 0
        assert "Its volumes are left out, since persistentvolumeclaims, persistentvolumes" in ran.stdout
        assert "checkpoints" not in ran.stdout
        assert len(ran.stderr.splitlines()) == 1
        assert ran.stderr.startswith("not allowed to read, and left out: ")
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            await admin.delete(f"{RBAC}/{kind}/{site.namespace}-reader")
    known = asked(control_plane, tmp_path, "explain", "train", "-n", site.namespace).stdout
    assert f"Claim {site.namespace}/checkpoints is not bound: there is no StorageClass none." in known


async def reader_of_pods_and_nodes(admin: Admin, cluster: ControlPlane, namespace: str) -> Path:
    """The kubeconfig of an account that may read those, and nothing else."""
    accounts, name = f"/api/v1/namespaces/{namespace}/serviceaccounts", f"{namespace}-reader"
    await admin.create(accounts, {"metadata": {"name": "reader"}})
    rule: Json = {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}
    await admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    binding: Json = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    await admin.create(f"{RBAC}/clusterrolebindings", binding)
    issued = await admin.create(f"{accounts}/reader/token", {"spec": {"expirationSeconds": 3600}})
    return cluster.kubeconfig_for(issued["status"]["token"], name)


async def test_the_optional_policy_refuses_misspelt_keys(site: GpuSite, admin: Admin) -> None:
    documents = policy_site.optional("refuse-unknown-keys.yaml")
    wrong = gpu_pod("probe", 1, annotations={"gpushare/exlusive": "true"})
    path = f"{site.pods_path}?dryRun=All"
    await policy_site.apply(admin, documents)
    try:
        await policy_site.until(UNKNOWN_KEYS, lambda: admin.post(path, wrong), refused=True)
        said = str((await admin.post(path, wrong)).body)
        assert "unknown, or not read there: gpushare/exlusive" in said
        for resource in ("aliyun.com/gpu-cout", names.GPU_COUNT):
            limits = {"name": "c", "image": "none", "resources": {"limits": {resource: "2"}}}
            said = str((await admin.post(path, gpu_pod("probe", 1, containers=[limits]))).body)
            assert f"not read there: {resource}" in said
        right = gpu_pod("probe", 1, annotations={names.EXCLUSIVE: "true", names.CARD_POLICY: "spread"})
        right["metadata"]["labels"] = {names.GPU_COUNT: "1", "app": "gpu"}
        assert (await admin.post(path, right)).status < 300
    finally:
        await policy_site.remove(admin, documents)
        await policy_site.until(UNKNOWN_KEYS, lambda: admin.post(path, wrong), refused=False)
