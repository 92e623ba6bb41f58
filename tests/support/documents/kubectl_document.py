"""The generated part of docs/kubectl.md: every command, and its output for a small cluster."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from typer.main import get_command

from config.protocol import names
from config.protocol.inventory import Health
from config.protocol.isolation import DRIVER
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.leases import LeaseSpec
from scheduler.kube.port import WantedLease
from scheduler.kube.versions import ServerVersion
from scheduler.process.terminal import printable
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.adoption.adoption import adoption
from scheduler.tools.adoption.adoption import lines as adoption_lines
from scheduler.tools.cli.asking import ClusterView, cluster_view
from scheduler.tools.cli.cordoning import told
from scheduler.tools.cli.plain import CONNECTION, also_understood, arguments_of, commands_of, flag_of, is_flag
from scheduler.tools.doctor.cluster_checks import diagnosed
from scheduler.tools.doctor.facts import ClusterFacts
from scheduler.tools.explain.cordons import cordoned, uncordoned
from scheduler.tools.explain.findings import audited
from scheduler.tools.explain.findings import lines as findings_lines
from scheduler.tools.explain.held import NONE, HoldingPods, holding_pods, pod_lines, reported
from scheduler.tools.explain.text import what_if_text
from scheduler.tools.explain.tones import Line, as_text
from scheduler.tools.explain.top import top
from scheduler.tools.explain.top_lines import card_lines, cluster_lines, node_lines
from scheduler.tools.kubectl.diagnosing import read_facts
from scheduler.tools.kubectl.main import cli
from scheduler.tools.kubectl.versions import ProgramVersions, version_lines
from tests.support.builders import card, wire_node, wire_pod
from tests.support.explaining import NOW_S, there, waits
from tests.support.legacy import DEFAULT, chosen, legacy_node, runs

_WIDTH: Final = 100
_LABELS: Final = {"gpushare": "true"}
_VERSIONS: Final = ProgramVersions(
    client="0.1.0 (commit 1a2b3c4d5e6f)",
    server="v1.36.3",
    scheduler=("registry.example/gpushare-scheduler:0.1.0",),
    device_plugin=("registry.example/gpushare-scheduler:0.1.0",),
)
_MODEL: Final = "NVIDIA-A100-SXM4-80GB"


def kubectl_markdown() -> str:
    """Return the part below the handwritten one."""
    group: Any = get_command(cli)
    parts, shown = ["## Commands\n", *_table(group)], ""
    for typed, text in _outputs():
        _, _, command, *_ = typed.split()
        parts += ["", *([f"## {command}", ""] if command != shown else []), f"```text\n$ {typed}\n{text}```"]
        shown = command
    return "\n".join(parts) + "\n"


def _table(group: Any) -> Iterator[str]:  # noqa: ANN401 - click's, vendored
    yield "| `kubectl gpushare …` | what it does | its own flags |"
    yield "|---|---|---|"
    yield from _rows(group, "")
    connection = [_name(one) for one in group.commands["audit"].params if one.rich_help_panel == CONNECTION]
    yield ""
    also = re.sub(r"[\w-]+", r"`\g<0>`", also_understood(group))
    yield f"Also understood: {also}; `create`, `apply` and `run` with `--dry-run` (`what-if`)."
    yield ""
    yield f"All but `demo` and `completion` also have the connection flags: {', '.join(connection)}."


def _rows(group: Any, before: str) -> Iterator[str]:  # noqa: ANN401 - as above
    for name, command in commands_of(group):
        if commands_of(command):
            yield from _rows(command, f"{before}{name} ")
            continue
        flags = [_name(one) for one in command.params if is_flag(one) and one.rich_help_panel != CONNECTION]
        words = " ".join([f"{before}{name}", *arguments_of(command)]).replace("|", "\\|")
        yield f"| `{words}` | {command.help} | {', '.join(flags)} |"


def _name(parameter: Any) -> str:  # noqa: ANN401 - as above
    return f"`{flag_of(parameter)}`"


def a_cluster() -> World:
    """Return node gpu-a with a used, an over-committed, an unhealthy and a cordoned card; gpu-b without a plugin."""
    of = World(lambda: NOW_S)
    failed = replace(card(2, 79, node="gpu-a", model=_MODEL, health=Health.UNHEALTHY), reason="xid-79")
    cards = [failed if index == 2 else card(index, 79, node="gpu-a", model=_MODEL) for index in range(4)]
    cards = [replace(one, isolation=DRIVER) for one in cards]
    of.nodes.add(wire_node("gpu-a", cards, labels=_LABELS, annotations={names.CORDON: "GPU-gpu-a-3"}))
    of.nodes.add(wire_node("gpu-b", [card(0, 15, node="gpu-b", model="Tesla-T4")], labels=_LABELS, gpu_mem=0))
    of.nodes.add(wire_node("gpu-c", [card(i, 15, node="gpu-c", model="Tesla-T4") for i in range(2)], labels=_LABELS))
    there(of, "web", 30, "gpu-a", 0)
    there(of, "train-0", 60, "gpu-a", 1, annotations={names.GPU_MEM_LIMIT: "70"})
    there(of, "train-1", 24, "gpu-a", 1)
    there(of, "old", 9, "gpu-b", 0)
    there(of, "notebook", 4, "gpu-c", 1)
    waits(of, "stranger", 2, scheduler="default-scheduler")
    waits(of, "large", 50)
    spec = LeaseSpec("gpushare-scheduler-0", 15, renew_time="2027-01-15T07:59:58.000000Z")
    of.leases.write(WantedLease(namespace="kube-system", name="gpushare-scheduler", version="", spec=spec))
    return of


def an_old_cluster() -> World:
    """Return node gpu-a with our device plugin, and gpu-b with the legacy one and its extender's annotations."""
    of = World(lambda: NOW_S)
    of.nodes.add(wire_node("gpu-a", [15], labels=_LABELS))
    of.nodes.add(legacy_node("gpu-b", 2, 15, **_LABELS))
    runs(of, "binpack-0", 3, "gpu-a", chosen(0, 3, 15))
    there(of, "ours", 2, "gpu-a", 0)
    runs(of, "binpack-1", 12, "gpu-b", chosen(0, 12, 15))
    runs(of, "by-hand", 1, "gpu-b", {})
    waits(of, "binpack-2", 3, scheduler=DEFAULT)
    return of


def _outputs() -> Iterator[tuple[str, str]]:
    """Yield (typed command, output), each with the cluster read again."""
    of = a_cluster()
    found = top(_read(of).reading.engine)
    yield "kubectl gpushare top nodes", _text(node_lines(found))
    yield "kubectl gpushare top cards", _text(card_lines(found))
    yield "kubectl gpushare top pods", _text(pod_lines(_held(of)))
    yield "kubectl gpushare top cluster", _text(cluster_lines(found.cluster))
    copies = _read(of).what_if(wire_pod("serve", 7), 8)
    yield "kubectl gpushare what-if --replicas 8 -f serve.yaml", what_if_text(copies, _WIDTH)
    made = cordoned(_read(of).reading.engine.tables, "gpu-c", ["1"])
    yield "kubectl gpushare cordon gpu-c --card 1", printable(told(made, "gpu-c"))
    made = uncordoned(_read(of).reading.engine.tables, "gpu-a", ["3"])
    yield "kubectl gpushare uncordon gpu-a --card 3", printable(told(made, "gpu-a"))
    yield "kubectl gpushare audit", _text(findings_lines(audited(_read(of).reading.engine)))
    yield "kubectl gpushare adopt", _text(adoption_lines(adoption(_read(an_old_cluster()).reading)))
    yield "kubectl gpushare doctor", _text(findings_lines(diagnosed(asyncio.run(_facts(of)))))
    yield "kubectl gpushare version", _text(version_lines(_VERSIONS))


def _held(of: World) -> HoldingPods:
    """With reports: gpu-c enforces nothing, and gpu-b reports nothing."""
    found = holding_pods(_read(of).reading, lambda pod, _node: pod.key.namespace == "default")
    used = {("default", "web"): 29_311, ("default", "train-0"): 61_904, ("default", "notebook"): 212}
    return reported(found, {"gpu-c": NONE}, used)


def _read(of: World) -> ClusterView:
    return asyncio.run(cluster_view(MemoryCluster(of), SchedulerConfiguration()))


async def _facts(of: World) -> ClusterFacts:
    async def version() -> ServerVersion:
        return ServerVersion("v1.36.3")

    read = await read_facts(MemoryCluster(of), SchedulerConfiguration(), version, datetime.fromtimestamp(NOW_S, UTC))
    return replace(read, policies=dict.fromkeys(names.POLICIES, True))


def _text(lines: Iterable[Line]) -> str:
    return as_text(lines, colour=False)
