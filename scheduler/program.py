"""Commands and flags of `gpushare-scheduler`. Each command has its own module."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from scheduler.process.output import show
from scheduler.tools.cli import ending
from scheduler.tools.cli.answering import configured, give_up
from scheduler.tools.cli.plain import HELP, PlainCommand, PlainGroup
from scheduler.tools.cli.target import Target
from scheduler.tools.kubectl.shared_commands import add_defragment, add_explain, add_page, add_what_if

PROGRAM: Final = "gpushare-scheduler"

cli = typer.Typer(
    cls=PlainGroup,
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=dict(HELP),
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


@cli.command(cls=PlainCommand, epilog="gpushare-scheduler run --config scheduler.yaml --kubeconfig ~/.kube/config")
def run(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file.")] = None,
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Kubeconfig file.")] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = "",
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of probes and metrics (default: :10261).")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (default: info).")
    ] = None,
) -> None:
    """Schedule a cluster's pods until stopped."""
    target = Target(program=PROGRAM, kubeconfig=kubeconfig, context=context)
    flags = {**target.flags, "listen": listen, "logLevel": log_level}
    configuration = configured(PROGRAM, config, flags)
    # Slow to import, and needed only by this command.
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


@cli.command("check-config", cls=PlainCommand, epilog="gpushare-scheduler check-config scheduler.yaml")
def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file.")],
) -> None:
    """Check a configuration file as `run` would read it (read-only)."""
    configuration = configured(PROGRAM, file, {})
    from scheduler.core.build import build_engine, installed_plugins  # noqa: PLC0415 - slow to import

    build_engine(configuration, installed_plugins())
    show((f"{file} is valid: {PROGRAM} run accepts it",))


@cli.command(cls=PlainCommand, epilog="gpushare-scheduler demo --speed 5\ngpushare-scheduler demo --loop --serve 8080")
def demo(
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, metavar="N", help="Seconds of the demo per real second.")
    ] = 1.0,
    loop: Annotated[bool, typer.Option("--loop", help="Start over at the end, until Ctrl-C.")] = False,  # noqa: FBT002 - a flag
    serve: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, metavar="PORT", help="Also show it on a web page; 0: any free port."),
    ] = None,
) -> None:
    """Show the scheduler on a small cluster in memory."""
    from scheduler.process.startup import StartupError  # noqa: PLC0415
    from scheduler.tools.demo.demo import demo as shown  # noqa: PLC0415

    try:
        raise typer.Exit(shown(sys.stdout, speed=speed, loops=loop, serve=serve))
    except StartupError as error:
        give_up(PROGRAM, str(error))


@cli.command(
    cls=PlainCommand,
    epilog="""
        gpushare-scheduler simulate docs/examples/cluster.yaml docs/examples/workload.yaml
        gpushare-scheduler simulate docs/examples/cluster.yaml docs/examples/workload.yaml --summary
    """,
)
def simulate(
    files: Annotated[list[Path], typer.Argument(metavar="CLUSTER.yaml [WORKLOAD.yaml]", help="Cluster files.")],
    *,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Configuration file; several are compared. NAME= uses the defaults."),
    ] = None,
    arrivals: Annotated[
        list[Path] | None, typer.Option(metavar="FILE.csv", help="Arriving pods, one per line; one run per file.")
    ] = None,
    shuffle: Annotated[str, typer.Option(metavar="1-10", help="One run for each of these orders of arrival.")] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Drop a pod that fits nowhere on arrival.")] = False,
    processes: Annotated[int, typer.Option(min=0, metavar="N", help="Concurrent runs; 0: one per core.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw how full the cards get (also .svg).")
    ] = None,
    output: Annotated[Literal["json"] | None, typer.Option("--output", "-o", help="Print this format.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print one screen of tables, not every pod.")] = False,
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
add_page(cli, PROGRAM)


def main() -> None:
    """Run the command line."""
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415 - whoever imports the commands logs as before

    configure_for_commands()
    ending.run(PROGRAM, cli)
