"""`kubectl gpushare`, `kubectl inspect gpushare` and `explain` where a real kube-apiserver decides what they may do.

What each command says is tested on clusters in memory; `suites/installed` types the commands of the documents.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from config.protocol import names
from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import environment
from e2e.support.gpu_site import NODES, GpuSite, cards_of, gpu_pod
from e2e.support.kubectl_gpushare import kubectl_gpushare
from tests.scheduler.tools.inspect.listed import CLUSTERS, golden, pod

# The namespace that the original's output names.
PODS = "/api/v1/namespaces/default/pods"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-of-web", "controller": True}
_, NODE_LIST, POD_LIST = CLUSTERS["summary"]


def run(module: str, kubeconfig: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of ours, to its end."""
    line = [sys.executable, "-m", f"scheduler.{module}", *arguments, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=60, check=False)


def creatable(document: Json) -> Json:
    """The pod with what the API server asks for and inspect does not read, and without what the server itself sets."""
    (container,) = document["spec"]["containers"]
    metadata = {key: value for key, value in document["metadata"].items() if key != "uid"}
    return {"metadata": metadata, "spec": document["spec"] | {"containers": [container | {"image": "none"}]}}


@pytest.fixture
async def two_nodes(admin: Admin) -> AsyncIterator[None]:
    """Of the golden files, with a finished pod and a waiting one that do not count."""
    others = [pod("finished", "5", idx="0"), pod("waiting", "5", on="")]
    try:
        await admin.create_all(NODES, NODE_LIST)
        await admin.create_all(PODS, [creatable(document) for document in (*POD_LIST, *others)])
        done(await admin.patch(f"{PODS}/finished/status", {"status": {"phase": "Succeeded"}}))
        yield
    finally:
        done(await admin.delete(PODS, {"gracePeriodSeconds": 0}))
        for document in NODE_LIST:
            await admin.delete(f"{NODES}/{document['metadata']['name']}")


async def test_inspect_prints_what_the_original_prints(
    cluster: provider.Target, two_nodes: None, tmp_path: Path
) -> None:
    del two_nodes
    for flags, name in (((), "summary"), (("-d",), "details")):
        ran = run("tools.kubectl.inspect", cluster.kubeconfig_path(), tmp_path, *flags)
        assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", golden(name))


def test_a_missing_node_is_reported_as_the_server_says_it(cluster: provider.Target, tmp_path: Path) -> None:
    ran = run("tools.kubectl.inspect", cluster.kubeconfig_path(), tmp_path, "nobody")
    assert (ran.returncode, ran.stdout) == (1, 'Failed due to nodes "nobody" not found')


def acting_as(cluster: provider.Target, folder: Path, *groups: str) -> Path:
    """A kubeconfig of the user who runs the tests, who acts as Jane of these groups."""
    document = yaml.safe_load(cluster.kubeconfig_path().read_text(encoding="utf-8"))
    document["users"][0]["user"] |= {"as": "jane", "as-groups": list(groups)}
    file = folder / "acting-as"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("module", "command"),
    [
        pytest.param("tools.kubectl.main", ("cordon", "a"), id="cordon"),
        pytest.param("tools.kubectl.main", ("explain", "p"), id="explain"),
        pytest.param("tools.kubectl.main", ("top",), id="top"),
        pytest.param("tools.kubectl.inspect", (), id="inspect"),
    ],
)
def test_who_is_impersonated_decides_what_a_command_may_do(
    cluster: provider.Target, tmp_path: Path, module: str, command: tuple[str, ...]
) -> None:
    ran = run(module, acting_as(cluster, tmp_path, "dev"), tmp_path, *command)

    assert ran.returncode in {1, 3}
    assert 'is forbidden: User "jane" cannot' in ran.stdout + ran.stderr


def test_an_impersonated_group_gives_its_rights(cluster: provider.Target, tmp_path: Path) -> None:
    ran = kubectl_gpushare(cluster, tmp_path, "top", kubeconfig=acting_as(cluster, tmp_path, "system:masters"))

    assert (ran.returncode, ran.stderr) == (0, "no nodes with GPU memory\n")


@pytest.fixture
async def reader(admin: Admin, control_plane: ControlPlane, namespace: str) -> AsyncIterator[Path]:
    """The kubeconfig of an account that may read pods and nodes, and nothing else."""
    rule: Json = {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}
    account = manifests.account(f"{namespace}-reader", rule)
    await manifests.apply(admin, *account)
    yield control_plane.kubeconfig_for(await manifests.token(admin, f"{namespace}-reader"), "reader")
    await manifests.remove(admin, *account)


async def test_with_pods_and_nodes_alone_nothing_is_said_to_be_missing(
    site: GpuSite, control_plane: ControlPlane, admin: Admin, reader: Path, tmp_path: Path
) -> None:
    await site.nodes(a=[16])
    claims = f"/api/v1/namespaces/{site.namespace}/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await admin.create(claims, {"metadata": {"name": "checkpoints"}, "spec": {**claim, "storageClassName": "none"}})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    await site.pod("train", 3, volumes=volumes)
    asked = ("explain", "pod/train", "-n", site.namespace)

    ran = run("main", reader, tmp_path, *asked)
    assert ran.returncode == 0
    assert "Its volumes are ignored, because persistentvolumeclaims, persistentvolumes" in ran.stdout
    assert "checkpoints" not in ran.stdout
    assert [line.partition(":")[0] for line in ran.stderr.splitlines()] == [
        "the scheduler's configuration may not be read, so its defaults are used; name a file with --config",
        "left out, because reading them is not allowed",
    ]
    known = run("main", control_plane.kubeconfig_path(), tmp_path, *asked).stdout
    assert f"Claim {site.namespace}/checkpoints is not bound: there is no StorageClass none." in known


# By kubectl's habits


DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


@pytest.fixture
async def held(site: GpuSite) -> GpuSite:
    """Node a with two cards; web holds 3 units of one, and train 8 of the other."""
    await site.nodes(a=[16, 16])
    for name, units in (("web", 3), ("train", 8)):
        document = gpu_pod(name, units)
        document["metadata"]["labels"] = {"app": name}
        await site.admin.create(site.pods_path, document)
        await site.bound(name)
    return site


# What is typed, and a part of what is said.
TYPED: Final = [
    ("top pods -n NAMESPACE", "web    a     "),
    ("get pods -n NAMESPACE -l app=web -o name", "pod/web\n"),
    ("top pod -A --no-headers", "8 GiB      -  unknown       -  running"),
    ("get node a -o wide", "MODELS"),
    ("top nodes a --sort-by free", "a         2     32         11    21"),
    ("describe node a", "/train (8)"),
    ("describe pod web -n NAMESPACE", "is bound."),
    ("cordon node/a --dry-run=client", "node a: 2 of 2 cards cordoned"),
    ("what-if -f docs/examples/whole-card.yaml -n NAMESPACE", "Pod NAMESPACE/whole-card would fit now"),
    ("defragment -f docs/examples/whole-card.yaml --max-moves 1", "default/whole-card"),
    ("version", "Kubernetes: v1."),
]


async def test_what_a_reader_of_kubectl_types(held: GpuSite, cluster: provider.Target, tmp_path: Path) -> None:
    for typed, said in TYPED:
        words = typed.replace("NAMESPACE", held.namespace).split()
        ran = await asyncio.to_thread(kubectl_gpushare, cluster, tmp_path, *words)
        assert (ran.stderr, said.replace("NAMESPACE", held.namespace) in ran.stdout) == ("", True), ran
    assert not done(await held.admin.get(f"{NODES}/a")).body["metadata"]["annotations"].get(names.CORDON)


async def test_flags_alone_say_which_cluster_and_who(
    held: GpuSite, control_plane: ControlPlane, tmp_path: Path
) -> None:
    flags = ["--server", control_plane.url, "--certificate-authority", str(control_plane.ca_file)]
    command = [sys.executable, "-m", "scheduler.tools.kubectl.main", "top", "pods", "-n", held.namespace, *flags]

    async def ran(*more: str) -> subprocess.CompletedProcess[str]:
        line = [*command, "--token", control_plane.admin_token, "--request-timeout", "20s", *more]
        return await asyncio.to_thread(
            subprocess.run, line, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
        )

    own = await ran()
    assert (own.returncode, "web" in own.stdout) == (0, True), own.stderr
    jane = await ran("--as", "jane", "--as-group", "dev")
    assert (jane.returncode, 'User "jane" cannot' in jane.stderr) == (3, True), jane
    assert (await ran("--as", "jane", "--as-group", "system:masters")).returncode == 0


async def test_the_configuration_is_that_of_the_deployment(
    held: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    """The other resource of this configuration: none of the pods holds any of it."""
    text = yaml.safe_dump(
        {
            "apiVersion": "gpushare/v1alpha1",
            "kind": "SchedulerConfiguration",
            "resources": {"gpuMem": "example.com/mem"},
        }
    )
    maps, deployments = f"/api/v1/namespaces/{held.namespace}/configmaps", DEPLOYMENTS.format(held.namespace)
    container = {
        "name": "scheduler",
        "image": "none",
        "args": ["run", "--config", "/etc/gpushare/scheduler.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/gpushare"}],
    }
    labels = {"app": "scheduler"}
    pods: Json = {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "settings"}}]}
    template = {"metadata": {"labels": labels}, "spec": pods}
    await held.admin.create(maps, {"metadata": {"name": "settings"}, "data": {"scheduler.yaml": text}})
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    await held.admin.create(deployments, {"metadata": {"name": "gpushare-scheduler"}, "spec": spec})
    try:
        asked = ("top", "pods", "-n", held.namespace, "-o", "name")
        ran = await asyncio.to_thread(kubectl_gpushare, cluster, tmp_path, *asked)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        file = tmp_path / "own.yaml"
        file.write_text("apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n")
        ran = await asyncio.to_thread(kubectl_gpushare, cluster, tmp_path, *asked, "--config", str(file))
        assert ran.stdout.split() == ["pod/train", "pod/web"]
        said = (await asyncio.to_thread(kubectl_gpushare, cluster, tmp_path, "version")).stdout
        assert "Scheduler: none\n" in said
    finally:
        done(await held.admin.delete(f"{deployments}/gpushare-scheduler"))


async def test_watch_prints_a_pod_when_it_is_bound(held: GpuSite, cluster: provider.Target, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scheduler.tools.kubectl.main", "top", "pods", "-n", held.namespace, "-w"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--kubeconfig",
        str(cluster.kubeconfig_path()),
        env=environment(tmp_path),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            table = [(await process.stdout.readline()).split()[0] for _ in range(3)]
            await held.pod("more", 5)
            row = list[bytes]()
            while row[1:2] != [b"a"]:
                row = (await process.stdout.readline()).split()
        assert (table, row[:2]) == ([b"NAME", b"train", b"web"], [b"more", b"a"])
    finally:
        process.kill()
        await process.wait()


def owned(name: str, units: int) -> Json:
    """A pod of the ReplicaSet. It has a grace period, so that the test sees it go."""
    made = gpu_pod(name, units)
    made["metadata"] |= {"ownerReferences": [OWNER], "labels": {"app": "web"}}
    return made


async def replace_what_is_evicted(site: GpuSite) -> str:
    """As controller and kubelet: the name of the pod that was evicted."""
    while True:
        for found in done(await site.admin.get(site.pods_path)).body["items"]:
            if "deletionTimestamp" in found["metadata"] or "DisruptionTarget" in json.dumps(found["status"]):
                name = str(found["metadata"]["name"])
                await site.admin.create(site.pods_path, owned(f"{name}-again", 8))
                await site.admin.delete(f"{site.pods_path}/{name}", {"gracePeriodSeconds": 0})
                return name
        await asyncio.sleep(0.1)


async def test_defragment_evicts_a_pod_and_the_one_that_waits_gets_the_card(
    site: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    """Two cards of a node, each with half of it used: first a whole one is taken, and given back."""
    await site.nodes(a=[16, 16])
    for name, units in (("web-0", 8), ("filler", 8), ("web-1", 8)):
        await site.admin.create(site.pods_path, owned(name, units))
        await site.bound(name)
    await site.delete_pod("filler")
    file = tmp_path / "asks.yaml"
    asks: Json = {"apiVersion": "v1", "kind": "Pod", **gpu_pod("asks", 16)}
    file.write_text(yaml.safe_dump(asks | {"metadata": asks["metadata"] | {"namespace": site.namespace}}))
    await site.admin.create(site.pods_path, gpu_pod("asks", 16))
    await site.unschedulable("asks")
    replacing = asyncio.create_task(replace_what_is_evicted(site))
    ran = await asyncio.to_thread(
        kubectl_gpushare, cluster, tmp_path, "defragment", "apply", "--timeout", "40", "-f", str(file)
    )
    # First: where it fails, nobody may be evicted.
    assert (ran.returncode, "Done." in ran.stderr) == (0, True), ran.stderr
    evicted = await asyncio.wait_for(replacing, 15)
    node = done(await site.admin.get(f"{NODES}/a")).body["metadata"]
    assert not node["annotations"].get(names.CORDON)
    bound = await site.bound("asks")
    other = await site.read(f"{evicted}-again")
    assert cards_of(bound).keys().isdisjoint(cards_of(other))
