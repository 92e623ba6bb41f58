"""`kubectl inspect gpushare [-d] [node ...]`: the units that each pod holds on each card.

The default output is that of the legacy command, byte by byte. Additions are `-o`, `--used`, `--config`, `--context`,
`--kubeconfig`, further nodes, and, below the legacy text, nodes that have pods but no allocatable GPU memory. Reads any
cluster that shares GPUs by memory, ours or the legacy one, through a kubeconfig (`KUBECONFIG`, or `~/.kube/config`).
Required rights: list nodes and pods; if nodes are named, get nodes and list pods.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from scheduler.process.output import show, show_json, show_text, warn
from scheduler.process.terminal import one_line
from scheduler.tools.cli import ending
from scheduler.tools.inspect import wire
from scheduler.tools.inspect.lists import as_json, compact, used_only, wide
from scheduler.tools.inspect.tables import details, summary
from scheduler.tools.inspect.view import InspectedNode, ListedResources, view


class _InspectFailed(Exception):
    """The cluster cannot be read. The message says why."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script.

    On failure, exits with 1 and prints the reason on standard output, like the legacy command.
    """
    ending.run("kubectl inspect gpushare", lambda: _inspect(arguments))


def _inspect(arguments: Sequence[str] | None) -> None:
    chosen = _parser().parse_intermixed_args(arguments)
    try:
        resources = _resources(chosen)
        node_items, pod_items = _fetch(chosen)
    except _InspectFailed as error:
        # The legacy command prints no line end here.
        show_text(f"Failed due to {_first_line(error)}")
        raise SystemExit(1) from None
    nodes, unread_nodes = wire.read(node_items, wire.ListedNode)
    pods, unread_pods = wire.read(pod_items, wire.ListedPod)
    warn((*unread_nodes, *unread_pods))
    shown = view(nodes, pods, with_gpu_memory_only=not chosen.nodes, resources=resources)
    if chosen.used:
        shown = used_only(shown)
    if chosen.output == "json":
        show_json(as_json(shown))
    else:
        show_text(_written(shown, chosen))


def _written(shown: Sequence[InspectedNode], chosen: argparse.Namespace) -> str:
    if chosen.output == "wide":
        return wide(shown, used=chosen.used)
    if chosen.output == "compact":
        return compact(shown)
    return (details if chosen.details else summary)(shown, named=bool(chosen.nodes))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kubectl inspect gpushare",
        description="Show which pods hold how much GPU memory on which card.",
        allow_abbrev=False,
    )
    parser.add_argument("nodes", nargs="*", metavar="node", help="only these nodes (default: all with GPU memory)")
    parser.add_argument("-d", dest="details", action="store_true", help="one line per pod")
    parser.add_argument(
        "-o",
        dest="output",
        choices=("wide", "compact", "json"),
        help="wide: a line per card, with model, health and pods; compact: a line per node, 100 columns; json",
    )
    parser.add_argument("--used", action="store_true", help="only nodes that pods hold units of; wide: only such cards")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the scheduler's configuration file, where it has one"
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: the current one)")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--kubeconfig", help="kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error like argparse, with the arguments quoted as plain text."""
        super().error(one_line(message))


class _Version(argparse.Action):
    """argparse's version action, with a text that is computed only when needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and exit."""
        from scheduler.process.build_info import build_info  # noqa: PLC0415 - slow to import

        show([f"kubectl-inspect-gpushare {build_info()}"])
        parser.exit()


def _resources(chosen: argparse.Namespace) -> ListedResources:
    """Return the configured resource names. Raises _InspectFailed.

    Sets the cluster of `chosen` from the configuration, unless a flag names one.
    """
    if chosen.config is None:
        return ListedResources()
    # Slow to import, and seldom needed.
    from config.settings.mistakes import ConfigurationError  # noqa: PLC0415
    from scheduler.core.build import BrokenPlugin, resource_names  # noqa: PLC0415
    from scheduler.tools.cli.answering import loaded  # noqa: PLC0415
    from scheduler.tools.cli.target import Target  # noqa: PLC0415

    try:
        target = Target(program="", kubeconfig=chosen.kubeconfig or "", context=chosen.context or "")
        configuration = loaded(chosen.config, target.flags)
    except (ConfigurationError, BrokenPlugin) as error:
        raise _InspectFailed("; ".join(str(error).splitlines())) from error
    connection, named = configuration.client_connection, resource_names(configuration)
    chosen.kubeconfig, chosen.context = connection.kubeconfig or None, connection.context or None
    return ListedResources(named.gpu_mem, named.gpu_count)


def _fetch(chosen: argparse.Namespace) -> tuple[list[msgspec.Raw], list[msgspec.Raw]]:
    """Return the nodes and pods to show. Raises _InspectFailed."""
    # Slow to import, and not needed by `--help`.
    from scheduler.tools.kubectl.inspect_cluster import CannotRead, read  # noqa: PLC0415

    names = sorted(set(chosen.nodes))
    for name in names:
        if not wire.is_name(name):
            raise _InspectFailed(f"{name!r} is not a node name")
    try:
        return asyncio.run(read(os.environ, chosen.kubeconfig, chosen.context, names))
    except CannotRead as error:
        raise _InspectFailed(str(error)) from error


def _first_line(error: Exception) -> str:
    return one_line((str(error).strip() or type(error).__name__).splitlines()[0])


if __name__ == "__main__":
    main()
