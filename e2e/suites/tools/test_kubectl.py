"""`kubectl gpushare` and the HTTP inspect API on a real kube-apiserver, with the scheduler at work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from config.protocol import names
from e2e.control_plane import provider
from e2e.control_plane.admin import done
from e2e.programs.scheduler_process import environment
from e2e.support.gpu_site import NODES, GpuSite, card
from e2e.support.kubectl_gpushare import kubectl_gpushare


async def test_a_cordoned_card_takes_no_new_pods_until_it_is_uncordoned(
    site: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    await site.nodes(a=[16])
    await site.pod("first", 3)
    await site.bound("first")
    ran = kubectl_gpushare(cluster, tmp_path, "cordon", "a", "--card", "0")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"its pods stay: {site.namespace}/first (3)" in ran.stdout
    node = done(await site.admin.get(f"{NODES}/a")).body
    assert node["metadata"]["annotations"][names.CORDON] == card("a", 0)

    await site.pod("second", 3)
    assert "cordoned" in await site.unschedulable("second")
    ran = kubectl_gpushare(cluster, tmp_path, "uncordon", "a")
    assert (ran.returncode, ran.stdout) == (0, f"node a: card 0 ({card('a', 0)}) takes new pods again\n")
    await site.bound("second")


async def test_top_and_the_inspect_api_count_what_was_bound(
    site: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    await site.nodes(a=[16, 8])
    await site.pod("p", 12)
    await site.bound("p")
    top = json.loads(kubectl_gpushare(cluster, tmp_path, "top", "-o", "json").stdout)
    assert [(one["node"], one["requested"], one["free"], one["mostFree"]) for one in top["nodes"]] == [("a", 12, 12, 8)]
    answered = json.loads(await site.scheduler.page("/gpushare-scheduler/inspect"))
    held = {"name": "p", "namespace": site.namespace, "usedGPU": 12}
    assert answered == {
        "nodes": [
            {
                "name": "a",
                "totalGPU": 24,
                "usedGPU": 12,
                "devs": [
                    {"id": 0, "totalGPU": 16, "usedGPU": 12, "pods": [held]},
                    {"id": 1, "totalGPU": 8, "usedGPU": 0, "pods": []},
                ],
            }
        ]
    }
    assert json.loads(await site.scheduler.page("/gpushare-scheduler/inspect/a")) == answered


async def test_audit_and_doctor_find_a_pod_that_came_past_the_scheduler(
    site: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    await site.nodes(a=[16])
    clean = kubectl_gpushare(cluster, tmp_path, "audit")
    assert (clean.returncode, clean.stderr) == (0, "")
    await site.pod("past", 3, nodeName="a")
    name = f"{site.namespace}/past"
    audit = kubectl_gpushare(cluster, tmp_path, "audit")
    assert (audit.returncode, f"pod {name} on node a: nobody knows its card" in audit.stdout) == (1, True)
    doctor = kubectl_gpushare(cluster, tmp_path, "doctor")
    assert (doctor.returncode, f"pod/{name} on node a" in doctor.stdout) == (1, True)


def acting_as(cluster: provider.Target, folder: Path, **user: object) -> Path:
    """A kubeconfig of the user who runs the tests, who acts as somebody else."""
    document = yaml.safe_load(cluster.kubeconfig_path().read_text(encoding="utf-8"))
    document["users"][0]["user"] |= user
    file = folder / "acting-as"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "command", [("cordon", "a"), ("explain", "p"), ("top",), ("inspect",)], ids=lambda args: args[0]
)
def test_who_is_impersonated_decides_what_a_command_may_do(
    cluster: provider.Target, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = acting_as(cluster, tmp_path, **{"as": "jane", "as-groups": ["dev"]})

    if command == ("inspect",):
        line = [sys.executable, "-m", "scheduler.tools.kubectl.inspect", "--kubeconfig", str(file)]
        ran = subprocess.run(line, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False)
    else:
        ran = kubectl_gpushare(cluster, tmp_path, *command, kubeconfig=file)

    assert ran.returncode in {1, 3}
    assert 'is forbidden: User "jane" cannot' in ran.stdout + ran.stderr


def test_an_impersonated_group_gives_its_rights(cluster: provider.Target, tmp_path: Path) -> None:
    file = acting_as(cluster, tmp_path, **{"as": "jane", "as-groups": ["system:masters"]})

    ran = kubectl_gpushare(cluster, tmp_path, "top", kubeconfig=file)

    assert (ran.returncode, ran.stderr) == (0, "")
