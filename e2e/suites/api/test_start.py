"""How the scheduler's process starts, and what it says when it cannot: one clear line that says what to do."""

import signal
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import SchedulerProcess, command, environment
from e2e.support.gpu_site import gpu_site
from tests.support.repository import ROOT


def ended(
    folder: Path, kubeconfig: Path, *flags: str, configuration: Mapping[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it in the expectation that it ends by itself."""
    run = [*command(kubeconfig, folder, configuration or {}), *flags]
    return subprocess.run(
        run, env=environment(folder), cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
    )


def complaints(scheduler: SchedulerProcess) -> list[tuple[str, str]]:
    """Event and hint of every line above the level info."""
    return [(line["event"], line["hint"]) for line in scheduler.lines() if line["level"] in {"warning", "error"}]


def test_every_mistake_in_the_configuration_is_named_and_the_exit_code_is_2(
    tmp_path: Path, cluster: provider.Target
) -> None:
    wrong = {"bindTimeout": "soon", "memoryUnitMib": 1, "profiles": [{"schedulerName": ""}]}

    run = ended(tmp_path, cluster.kubeconfig_path(), "--log-level", "loud", configuration=wrong)

    assert run.returncode == 2
    assert run.stdout == ""
    assert sorted(
        line.removeprefix(f"{tmp_path}/scheduler.yaml: ").split(":")[0] for line in run.stderr.splitlines()
    ) == [
        "bindTimeout",
        "flag --log-level",
        "memoryUnitMib",
        "profiles[0].schedulerName",
    ]
    assert "did you mean memoryUnitMiB?" in run.stderr


def test_a_context_that_is_not_there_is_one_line_that_names_those_that_are(
    tmp_path: Path, cluster: provider.Target
) -> None:
    run = ended(tmp_path, cluster.kubeconfig_path(), "--listen", "127.0.0.1:0", "--context", "production")

    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1
    assert "production" in run.stderr
    assert run.stderr.endswith(f"choose with --context one of: {cluster.context}\n")


def test_an_address_that_is_taken_is_one_line_and_exit_code_2(tmp_path: Path, cluster: provider.Target) -> None:
    taken = cluster.access().url.removeprefix("https://")

    run = ended(tmp_path, cluster.kubeconfig_path(), "--listen", taken)

    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1
    assert run.stderr.startswith(f"gpushare-scheduler: cannot listen on {taken}: ")
    assert run.stderr.endswith("address already in use; choose another address with --listen\n")


async def test_it_waits_for_a_server_that_is_not_there_and_schedules_when_it_comes(
    control_plane: ControlPlane, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        with control_plane.cut_off(kill=True):
            scheduler = stack.enter_context(SchedulerProcess(control_plane.kubeconfig_path(), tmp_path))
            said = await scheduler.said("api.unreachable")
        await scheduler.said("api.reachable", within_s=60)
        await scheduler.ready()
        async with gpu_site(admin, namespace, scheduler) as site:
            await site.nodes(a=[16])
            await site.pod("p", 3)
            await site.bound("p")

    assert control_plane.url.removeprefix("https://") in said["reason"]
    assert complaints(scheduler) == [
        ("api.unreachable", "check the server's address and the network; retrying until it answers")
    ]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_at_once_on_sigterm_and_sigint(
    cluster: provider.Target, tmp_path: Path, end: signal.Signals
) -> None:
    with SchedulerProcess(cluster.kubeconfig_path(), tmp_path) as scheduler:
        await scheduler.ready()
        scheduler.child.process.send_signal(end)
        exit_code = scheduler.child.process.wait(5)

    assert exit_code == 0
    assert scheduler.lines()[-1]["event"] == "stop"
