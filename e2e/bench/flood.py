"""Another client floods the API server with LISTs: what our FlowSchema is worth, and whether the Lease is kept.

    python -m e2e.bench.flood             500 nodes, 1,000 pods, into docs/benchmarks.md
    python -m e2e.bench.flood --quick     a fifth of that, printed only

A fresh API server for each run, with priority and fairness on and its default concurrency. The scheduler runs as a
service account outside kube-system, since kube-apiserver's own schemas raise those of kube-system; it elects a leader
with the shipped timing. The flood begins before the scheduler.
"""

import argparse
import asyncio
import datetime as dt
import itertools
import json
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from e2e.bench import figures, workload
from e2e.bench.contenders import OURS
from e2e.bench.observer import PODS, Observer
from e2e.bench.workload import NAMESPACE, Size
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.commands import StaticUser
from e2e.control_plane.processes import free_ports, start
from e2e.programs import manifests
from e2e.programs.scheduler_process import command, environment
from tests.support.repository import ROOT

IN_FLIGHT: Final = 64
_SIZE: Final = Size(nodes=500, pods=1000, templates=1)
_OUR_NAMESPACE: Final = "gpushare"
_US: Final = f"system:serviceaccount:{_OUR_NAMESPACE}:{manifests.SCHEDULER}"
_FLOODER: Final = "system:serviceaccount:others:flooder"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{manifests.NAMESPACE}/leases"
_FLOODED_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.05
_AT_MOST_S: Final = 300.0
_HEAD: Final = ("figure", "with our FlowSchema", "without")
_TITLE: Final = "Beside a client that floods the API server"
_EXPLANATION: Final = """\
{pods:,} pods wait at {nodes:,} nodes; another service account lists all pods, {in_flight} requests at once, without
end. kube-apiserver has priority and fairness on and its default concurrency. The scheduler's service account is in a
namespace of its own, where kube-apiserver's schemas put it beside every other workload; with
`deploy/manifests/flow-schema.yaml` it is not. Leader election as shipped (15 s, 10 s, 2 s). Rate: from the first pod
seen with a node to the last. One run each, on two cores that all processes share.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodRun:
    """renewal_s: longest time between two renewals of the Lease, as it says. lost: how often the Lease was lost.

    lists: that the flooding client was served whole, per second. refused: answered 429.
    """

    pods_per_s: float
    renewal_s: float
    lost: int
    lists: float
    refused: int


def main(arguments: list[str] | None = None) -> int:
    """Measure with and without, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.flood", description="Measure beside a flood of LISTs.")
    parser.add_argument("--quick", action="store_true", help="a fifth of the size, printed only")
    quick = parser.parse_args(arguments).quick
    size = Size(_SIZE.nodes // 5, _SIZE.pods // 5, _SIZE.templates) if quick else _SIZE
    binaries.ensure(["etcd", "kube-apiserver"])
    measured = rows(run(size, schemas=True), run(size, schemas=False))
    explained = _EXPLANATION.format(pods=size.pods, nodes=size.nodes, in_flight=IN_FLIGHT)
    figures.report("flood", _TITLE, explained, measured, _HEAD, written=not quick)
    return 0


def rows(shielded: FloodRun, bare: FloodRun) -> list[tuple[str, str, str]]:
    """Figure, with our FlowSchema, without."""
    return [
        ("pods bound per second", f"{shielded.pods_per_s:,.0f}", f"{bare.pods_per_s:,.0f}"),
        ("with ÷ without", f"{shielded.pods_per_s / bare.pods_per_s:.2f}", ""),
        ("longest time between two renewals of the Lease, s", f"{shielded.renewal_s:.1f}", f"{bare.renewal_s:.1f}"),
        ("Lease lost", f"{shielded.lost}", f"{bare.lost}"),
        ("lists served to the other client, per second", f"{shielded.lists:.1f}", f"{bare.lists:.1f}"),
        ("lists refused with 429", f"{shielded.refused}", f"{bare.refused}"),
    ]


def run(size: Size, *, schemas: bool) -> FloodRun:
    """One run on a fresh control plane. schemas: with our FlowSchemas. Raises TimeoutError."""
    users = [_account(_US), _account(_FLOODER)]
    with (
        ControlPlane(users=users) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_run(cluster, size, schemas=schemas))


def _account(name: str) -> StaticUser:
    namespace = name.split(":")[2]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return StaticUser(secrets.token_hex(16), name, groups)


async def _run(cluster: ControlPlane, size: Size, *, schemas: bool) -> FloodRun:
    async with Admin(cluster.access()) as admin:
        await _prepare(admin, size, schemas=schemas)
        observer, renewals = Observer(size.pods), list[str]()
        async with asyncio.TaskGroup() as tasks:
            watching = [
                tasks.create_task(watch) for watch in (observer.watch_pods(admin), _watch_lease(admin, renewals))
            ]
            await observer.caught_up.wait()
            with _flooding(cluster) as flood:
                began_s = time.monotonic()
                await asyncio.sleep(_FLOODED_S)
                lost = await _schedule(cluster, observer, size)
                answers, lasted_s = await flood(), time.monotonic() - began_s
            for task in watching:
                task.cancel()
    return FloodRun(
        pods_per_s=(size.pods - 1) / (observer.last_s - observer.first_s),
        renewal_s=longest_pause_s(renewals),
        lost=lost,
        lists=answers.get("200", 0) / lasted_s,
        refused=answers.get("429", 0),
    )


async def _prepare(admin: Admin, size: Size, *, schemas: bool) -> None:
    await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name in (_US, _FLOODER):
        await manifests.apply(admin, _everything_for(name))
    for schema in manifests.documents("flow-schema.yaml") if schemas else ():
        for rule in schema["spec"]["rules"]:
            rule["subjects"][0]["serviceAccount"]["namespace"] = _OUR_NAMESPACE
        await manifests.apply(admin, schema)
    await admin.create_all("/api/v1/nodes", workload.nodes(size))
    await admin.create_all(PODS, workload.pods(size))


def _everything_for(user: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user.replace(":", "-")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


async def _schedule(cluster: ControlPlane, observer: Observer, size: Size) -> int:
    """Run the scheduler until every pod has a node; how often it lost the Lease."""
    (port,) = free_ports(1)
    line = command(cluster.kubeconfig_path(_US), cluster.folder, {"bindTimeout": "0s"})
    log = cluster.folder / "ours.log"
    child = start(OURS, [*line, "--listen", f"127.0.0.1:{port}"], log, environment(cluster.folder))
    try:
        async with asyncio.timeout(_AT_MOST_S):
            while len(observer.bound) < size.pods:
                await asyncio.sleep(_LOOK_EVERY_S)
                child.check_alive()
    finally:
        child.stop()
        _tell_of(log)
    return log.read_text().count('"leader.lost"')


def _tell_of(log: Path) -> None:
    """What happened besides binds, for whoever looks on."""
    events = Counter(json.loads(line)["event"] for line in log.read_text().splitlines() if line.startswith("{"))
    sys.stderr.write(f"{dict(events)}\n")


async def _watch_lease(admin: Admin, renewals: list[str]) -> None:
    while True:
        async for line in admin.watch(_LEASES, {"fieldSelector": f"metadata.name={manifests.SCHEDULER}"}):
            spec = msgspec.json.decode(line)["object"].get("spec", {})
            if "renewTime" in spec:
                renewals.append(spec["renewTime"])


def longest_pause_s(renewals: list[str]) -> float:
    """Seconds between two renewals that the Lease has shown."""
    times = sorted({dt.datetime.fromisoformat(text) for text in renewals})
    return max(((b - a).total_seconds() for a, b in itertools.pairwise(times)), default=0.0)


@contextmanager
def _flooding(cluster: ControlPlane) -> Iterator[Any]:
    """A flood; call what is given to end it, for what the other client was answered."""
    token = cluster.access(_FLOODER).authorization or ""
    what = [cluster.url, str(cluster.ca_file), token.removeprefix("Bearer "), str(IN_FLIGHT)]
    command = [sys.executable, "-m", "e2e.bench.flooder", *what]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:

        async def end() -> dict[str, int]:
            running.terminate()
            said, _ = await asyncio.to_thread(running.communicate)
            return dict(json.loads(said))

        try:
            yield end
        finally:
            running.terminate()


if __name__ == "__main__":
    sys.exit(main())
