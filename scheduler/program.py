"""`gpushare-scheduler`: commands and flags. Each command has a module of its own."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from scheduler.process.output import show
from scheduler.tools.cli import ending
from scheduler.tools.cli.answering import configured, connection_flags, give_up
from scheduler.tools.kubectl.shared_commands import (
    Context,
    Kubeconfig,
    Output,
    add_defragment,
    add_explain,
    add_what_if,
)

PROGRAM: Final = "gpushare-scheduler"

cli = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@cli.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """A secondary Kubernetes scheduler that shares GPUs by memory."""
    if version:
        from scheduler.process.build_info import build_info  # noqa: PLC0415 - no other command needs it

        show([f"gpushare-scheduler {build_info()}"])
        raise typer.Exit


@cli.command()
def run(
    config: Annotated[Path | None, typer.Option(help="Configuration file (SchedulerConfiguration).")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    listen: Annotated[str | None, typer.Option(help="Address of probes and metrics (default: :10261).")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error (default: info).")] = None,
) -> None:
    """Schedule a cluster's pods until stopped."""
    flags = {**connection_flags(kubeconfig, context), "listen": listen, "logLevel": log_level}
    configuration = configured(PROGRAM, config, flags)
    # Slow to import, and needed by this command only.
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


@cli.command("check-config")
def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file (SchedulerConfiguration).")],
) -> None:
    """Check a configuration file, with this environment's settings, as run would read it (read-only)."""
    configuration = configured(PROGRAM, file, {})
    from scheduler.core.build import build_engine, installed_plugins  # noqa: PLC0415 - slow to import

    build_engine(configuration, installed_plugins())
    show((f"{file} is valid: {PROGRAM} run accepts it",))


@cli.command()
def demo(
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Seconds of the demo per real second.")] = 1.0,
    keep: Annotated[bool, typer.Option("--keep", help="Start over at the end, until Ctrl-C.")] = False,  # noqa: FBT002 - a flag
    serve: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Show it on a web page too, on this port; 0: any free one.")
    ] = None,
) -> None:
    """Watch the scheduler at work on a small cluster in memory."""
    from scheduler.process.startup import StartupError  # noqa: PLC0415
    from scheduler.tools.demo.demo import demo as shown  # noqa: PLC0415

    try:
        raise typer.Exit(shown(sys.stdout, speed=speed, keep=keep, serve=serve))
    except StartupError as error:
        give_up(PROGRAM, str(error))


@cli.command()
def simulate(
    files: Annotated[list[Path], typer.Argument(metavar="CLUSTER.yaml [WORKLOAD.yaml]...", help="Cluster files.")],
    *,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE", help="Configuration file; several: compared with each other. NAME= is the default."
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
    output: Output = "table",
    summary: Annotated[bool, typer.Option("--summary", help="Tables of one screen instead of every pod.")] = False,
) -> None:
    """Schedule the pods of a cluster file on its nodes, at full speed."""
    from scheduler.tools.simulate.simulate import SimulateFlags, simulate as answer  # noqa: I001, PLC0415 - slow to import

    flags = SimulateFlags(
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
    answer(PROGRAM, flags)


add_explain(cli, PROGRAM)
add_what_if(cli, PROGRAM)
add_defragment(cli, PROGRAM)


def main() -> None:
    """Run the command line."""
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415 - whoever imports the commands logs as before

    configure_for_commands()
    ending.run(PROGRAM, cli)
