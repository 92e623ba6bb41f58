"""`explain` and `what-if`, and the Events about mistaken pods, on a real kube-apiserver with the scheduler at work."""

import json
import subprocess
import sys
from pathlib import Path

from config.protocol import names
from e2e.control_plane import provider
from e2e.control_plane.admin import Admin
from e2e.programs.scheduler_process import environment
from e2e.suites import policy_site
from e2e.suites.gpu_site import GpuSite, gpu_pod

UNKNOWN_KEYS = "gpushare-unknown-keys"


def asked(cluster: provider.Target, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scheduler.main", *arguments, "--kubeconfig", str(cluster.kubeconfig_path())]
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


async def test_mistaken_pods_are_told_what_to_write(site: GpuSite) -> None:
    await site.nodes(a=[16])
    await site.pod("misspelt", 3, annotations={"gpushare/exlusive": "true"})
    assert (await site.event("misspelt", "Mistake"))["note"].endswith("did you mean gpushare/exclusive?")
    await site.pod("forgotten", 3, schedulerName="default-scheduler")
    assert "add `schedulerName: gpushare-scheduler`" in (await site.event("forgotten", "Mistake"))["note"]
    bytes_of = {"name": "c", "image": "none", "resources": {"limits": {names.GPU_MEM: "1Gi"}}}
    await site.pod("bytes", 1, containers=[bytes_of])
    assert "units are GiB here; write 1" in await site.unschedulable("bytes")


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
