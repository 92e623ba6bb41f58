"""`kubectl inspect gpushare` on a real kube-apiserver: TLS, its field selectors, its answers."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, Json, done
from e2e.support.gpu_site import NODES
from tests.scheduler.tools.inspect.listed import CLUSTERS, golden, pod

# The namespace that the original's output names.
PODS = "/api/v1/namespaces/default/pods"
_, NODE_LIST, POD_LIST = CLUSTERS["summary"]


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


def inspect(cluster: provider.Target, *arguments: str) -> subprocess.CompletedProcess[str]:
    return inspect_with(cluster.kubeconfig_path(), *arguments)


def inspect_with(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-m", "scheduler.tools.kubectl.inspect", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


async def test_it_prints_what_the_original_prints(cluster: provider.Target, two_nodes: None) -> None:
    del two_nodes
    for flags, name in (((), "summary"), (("-d",), "details")):
        ran = inspect(cluster, *flags)
        assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", golden(name))


async def test_a_named_node_is_shown_alone(cluster: provider.Target, two_nodes: None) -> None:
    del two_nodes
    lines = inspect(cluster, "gpu-node-a").stdout.splitlines()
    assert lines[1].split() == ["gpu-node-a", "192.168.0.71", "3/15", "4/15", "7/30"]
    assert lines[-1].strip() == "7/30 (23%)"


def without_authority(cluster: provider.Target, file: Path, **more: object) -> Path:
    """The cluster's kubeconfig less what says whose certificates to believe."""
    document = yaml.safe_load(cluster.kubeconfig_path().read_text(encoding="utf-8"))
    (entry,) = document["clusters"]
    entry["cluster"] = {"server": entry["cluster"]["server"], **more}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    file.chmod(0o600)
    return file


async def test_a_certificate_that_cannot_be_verified_is_one_line(cluster: provider.Target, tmp_path: Path) -> None:
    ran = inspect_with(without_authority(cluster, tmp_path / "config"))
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "CERTIFICATE_VERIFY_FAILED" in ran.stdout
    assert "\n" not in ran.stdout


async def test_without_verification_there_is_no_warning(
    cluster: provider.Target, two_nodes: None, tmp_path: Path
) -> None:
    del two_nodes
    ran = inspect_with(without_authority(cluster, tmp_path / "config", **{"insecure-skip-tls-verify": True}))
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", golden("summary"))
