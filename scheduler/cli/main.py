"""`gpushare-scheduler`: the commands and their flags. What each command does is in a module of its own."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from scheduler.cli import ending
from scheduler.cli.answering import Exit, answering, configured, connection_flags, give_up, named_pod

PROGRAM: Final = "gpushare-scheduler"

cli = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@cli.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Say which build this is, and end.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """A secondary Kubernetes scheduler that shares GPUs by memory."""
    if version:
        from scheduler.process.build_info import build_info  # noqa: PLC0415 - no other command needs it

        sys.stdout.write(f"gpushare-scheduler {build_info()}\n")
        raise typer.Exit


@cli.command()
def run(
    config: Annotated[Path | None, typer.Option(help="Configuration file (SchedulerConfiguration).")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address of probes and metrics (default: :10261).")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error (default: info).")] = None,
) -> None:
    """Schedule a cluster's pods until stopped."""
    flags = {**connection_flags(kubeconfig, context), "listen": listen, "logLevel": log_level}
    configuration = configured(PROGRAM, config, flags)
    # What follows is slow to import and needed by this command only.
    import uvloop  # noqa: PLC0415

    from scheduler.app import run as run_scheduler  # noqa: PLC0415
    from scheduler.process.logs import configure  # noqa: PLC0415
    from scheduler.process.startup import StartupError  # noqa: PLC0415

    configure(configuration.log_level, configuration.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_scheduler(configuration, os.environ))
    except StartupError as error:
        give_up(PROGRAM, str(error))


@cli.command()
def demo(
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Seconds of the demo per real second.")] = 1.0,
    keep: Annotated[bool, typer.Option("--keep", help="Start over at the end, until Ctrl-C.")] = False,  # noqa: FBT002 - a flag
    serve: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Show it on a web page too, on this port; 0: any free one.")
    ] = None,
) -> None:
    """Watch the scheduler at work on a small cluster in memory."""
    from scheduler.cli.demo import demo as show  # noqa: PLC0415
    from scheduler.process.startup import StartupError  # noqa: PLC0415

    try:
        raise typer.Exit(show(sys.stdout, speed=speed, keep=keep, serve=serve))
    except StartupError as error:
        give_up(PROGRAM, str(error))


@cli.command()
def simulate(
    files: Annotated[list[Path], typer.Argument(metavar="CLUSTER.yaml [WORKLOAD.yaml]...", help="Cluster files.")],
    *,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE", help="Configuration file; several: beside each other. NAME= is the default."
        ),
    ] = None,
    arrivals: Annotated[
        list[Path] | None, typer.Option(metavar="FILE.csv", help="Pods that come, one a line; several: a run each.")
    ] = None,
    shuffle: Annotated[str, typer.Option(metavar="1-10", help="A run for each of these orders of the arrivals.")] = "",
    reject: Annotated[bool, typer.Option("--reject", help="A pod that fits nowhere when it comes is gone.")] = False,
    processes: Annotated[int, typer.Option(min=0, help="Runs at the same time; 0: one on each core.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw how full the cards get (also .svg).")
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")] = "table",
    summary: Annotated[bool, typer.Option("--summary", help="Tables of one screen instead of every pod.")] = False,
) -> None:
    """Schedule the pods of a cluster file on its nodes, at full speed."""
    from scheduler.cli.simulate import Asked, simulate as answer  # noqa: I001, PLC0415 - slow to import

    asked = Asked(
        files=tuple(files),
        configs=tuple(config or ()),
        arrivals=tuple(arrivals or ()),
        shuffle=shuffle,
        rejects=reject,
        processes=processes,
        plot=plot,
        json=output == "json",
        summary=summary,
    )
    answer(PROGRAM, asked)


@cli.command()
def explain(
    pod: Annotated[str, typer.Argument(metavar="POD", help="Name of the pod; also pod/NAME or NAMESPACE/NAME.")],
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace (default: the context's).")] = "",
    node: Annotated[str, typer.Option(help="Look at this node only.")] = "",
    config: Annotated[Path | None, typer.Option(help="Configuration file (SchedulerConfiguration).")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Say why a pod waits: per node and card what is free, what is in the way, and what would help. Only reads."""
    namespace, name = named_pod(PROGRAM, pod, namespace)
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.cli.explain import explain as answer  # noqa: PLC0415

    with answering(PROGRAM):
        answer(configuration, os.environ, namespace=namespace, name=name, node=node, output=output)


@cli.command("what-if")
def what_if(
    *,
    file: Annotated[Path, typer.Option("--file", "-f", help="Manifest of a pod or a workload; - for standard input.")],
    replicas: Annotated[int, typer.Option(min=1, max=10_000, help="How many copies.")] = 1,
    config: Annotated[Path | None, typer.Option(help="Configuration file (SchedulerConfiguration).")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Say how many copies of a pod would fit now, where, and what stops the next. Only reads."""
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.cli.explain import what_if as answer  # noqa: PLC0415

    with answering(PROGRAM):
        answer(configuration, os.environ, file=file, replicas=replicas, output=output)


@cli.command()
def defragment(
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Make room for this pod or workload; - for standard input.")
    ] = None,
    cluster: Annotated[
        list[Path] | None, typer.Option(metavar="CLUSTER.yaml", help="Plan for cluster files instead of a cluster.")
    ] = None,
    max_moves: Annotated[int, typer.Option(min=1, max=100, help="Pods that are moved at most.")] = 10,
    max_priority: Annotated[
        int | None, typer.Option(help="Of pods that are moved (default: that of the pod, or 0 without one).")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Evict the pods, one at a time; or only say which.")
    ] = False,
    timeout: Annotated[int, typer.Option(min=1, help="Seconds for each move.")] = 300,
    config: Annotated[Path | None, typer.Option(help="Configuration file (SchedulerConfiguration).")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Say which pods to move, and where, so that a pod fits, or that usual pods can use more; --execute evicts them."""
    if execute and cluster:
        give_up(PROGRAM, "--execute needs a cluster: a cluster file is only planned for")
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.cli.defragment import Asked  # noqa: PLC0415
    from scheduler.cli.defragment import defragment as answer  # noqa: PLC0415

    asked = Asked(
        file=file,
        cluster=tuple(cluster or ()),
        most_moves=max_moves,
        max_priority=max_priority,
        evicts=execute,
        timeout_s=timeout,
        output=output,
    )
    with answering(PROGRAM):
        found = answer(PROGRAM, configuration, os.environ, asked)
    raise typer.Exit(Exit.FINE if found else Exit.FOUND)


def main() -> None:
    """Run what the command line says."""
    ending.run(PROGRAM, cli)
