"""`kubectl gpushare`: the commands and their flags. What each command does is in a module of its own."""

import asyncio
import os
import sys
from typing import Annotated, Final, Literal

import typer

from scheduler.process.output import show_text
from scheduler.tools.cli import ending
from scheduler.tools.cli.answering import Exit, answering, configured, connection_flags, give_up, show_answer
from scheduler.tools.kubectl.completion import Shell, script
from scheduler.tools.kubectl.shared_commands import (
    Config,
    Context,
    Kubeconfig,
    Output,
    add_defragment,
    add_explain,
    add_what_if,
)

PROGRAM: Final = "kubectl gpushare"

_Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
_Cards = Annotated[
    list[str] | None,
    typer.Option("--card", metavar="INDEX|UUID", help="This card; may be repeated. Without: every card of the node."),
]

cli = typer.Typer(
    help="Look at shared GPUs, and take cards out of use. Exit codes: 0 fine, 1 something was found or is not there, "
    "2 wrong usage, 3 the cluster cannot be read.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@cli.command()
def top(
    what: Annotated[Literal["cluster", "nodes", "cards"], typer.Argument(help="At which size.")] = "nodes",
    *,
    sort_by: Annotated[
        Literal["name", "free", "requested", "most-free", "pods", "fragmented"], typer.Option(help="The largest first.")
    ] = "name",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Show what is requested and free: of the cluster, of each node, or of each card. Only reads."""
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.kube.port import CONFIG_MAPS, NODES, PODS  # noqa: PLC0415
    from scheduler.tools.cli.asking import ClusterView, asked  # noqa: PLC0415 - what a command needs alone is slow
    from scheduler.tools.explain.top import Top, lines, sorted_by  # noqa: PLC0415
    from scheduler.tools.explain.top import top as counted  # noqa: PLC0415

    async def ask(of: ClusterView) -> Top:
        return sorted_by(counted(of.reading.engine), sort_by)

    with answering(PROGRAM):
        found = asked(configuration, os.environ, ask, (NODES, PODS, CONFIG_MAPS))
    show_answer(found, lines(found, what), output)


add_explain(cli, PROGRAM)
add_what_if(cli, PROGRAM)
add_defragment(cli, PROGRAM)


@cli.command()
def cordon(
    node: _Node,
    *,
    card: _Cards = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Take cards out of use for new pods; pods that are on them stay. Needs the right to patch nodes."""
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.tools.cli.cordoning import write  # noqa: PLC0415 - as above
    from scheduler.tools.explain.cordons import cordoned  # noqa: PLC0415

    with answering(PROGRAM):
        write(configuration, os.environ, cordoned, node, card or ())


@cli.command()
def uncordon(
    node: _Node,
    *,
    card: _Cards = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Give cards back to new pods. Needs the right to patch nodes."""
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.tools.cli.cordoning import write  # noqa: PLC0415 - as above
    from scheduler.tools.explain.cordons import uncordoned  # noqa: PLC0415

    with answering(PROGRAM):
        write(configuration, os.environ, uncordoned, node, card or ())


@cli.command()
def audit(
    *, config: Config = None, kubeconfig: Kubeconfig = None, context: Context = None, output: Output = "table"
) -> None:
    """Count what pods hold of every card: over-committed ones, pods without a card, unknown cards. Only reads."""
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.kube.port import NODES, PODS  # noqa: PLC0415
    from scheduler.tools.cli.asking import ClusterView, asked  # noqa: PLC0415 - as above
    from scheduler.tools.explain.findings import Findings, audited, lines  # noqa: PLC0415

    async def ask(of: ClusterView) -> Findings:
        return audited(of.reading.engine, of.unread)

    with answering(PROGRAM):
        found = asked(configuration, os.environ, ask, (NODES, PODS))
    show_answer(found, lines(found), output)
    raise typer.Exit(Exit.FINE if found.clean else Exit.FOUND)


@cli.command()
def adopt(
    *,
    check: Annotated[bool, typer.Option("--check", help="Needed: there is nothing to write.")] = False,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Say what would count of each pod that the legacy extender has bound, and what is in the way. Only reads."""
    if not check:
        give_up(PROGRAM, "adopt needs --check: the scheduler adopts pods by itself, from their annotations")
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.kube.port import NODES, PODS  # noqa: PLC0415
    from scheduler.tools.adoption.adoption import Adoption, adoption, lines  # noqa: PLC0415
    from scheduler.tools.cli.asking import ClusterView, asked  # noqa: PLC0415 - as above

    async def ask(of: ClusterView) -> Adoption:
        return adoption(of.reading, tuple(of.unread))

    with answering(PROGRAM):
        found = asked(configuration, os.environ, ask, (NODES, PODS))
    show_answer(found, lines(found), output)
    raise typer.Exit(Exit.FINE if found.clean else Exit.FOUND)


@cli.command()
def doctor(
    *, config: Config = None, kubeconfig: Kubeconfig = None, context: Context = None, output: Output = "table"
) -> None:
    """Look at scheduler, device plugins, nodes and pods, and say what is wrong and what to do. Only reads."""
    configuration = configured(PROGRAM, config, connection_flags(kubeconfig, context))
    from scheduler.tools.doctor.cluster_checks import diagnosed  # noqa: PLC0415
    from scheduler.tools.explain.findings import lines  # noqa: PLC0415
    from scheduler.tools.kubectl.diagnosing import facts  # noqa: PLC0415 - as above

    with answering(PROGRAM):
        found = diagnosed(asyncio.run(facts(configuration, os.environ)))
    show_answer(found, lines(found), output)
    raise typer.Exit(Exit.FINE if found.clean else Exit.FOUND)


@cli.command()
def demo(
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Seconds of the demo per real second.")] = 1.0,
    keep: Annotated[bool, typer.Option("--keep", help="Start over at the end, until Ctrl-C.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Watch the scheduler at work on a small cluster in memory."""
    from scheduler.tools.demo.demo import demo as show  # noqa: PLC0415 - as above

    raise typer.Exit(show(sys.stdout, speed=speed, keep=keep))


@cli.command()
def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion of `kubectl-gpushare` for a shell; kubectl completes `kubectl gpushare` without it."""
    show_text(script(shell))


def main() -> None:
    """The console script `kubectl-gpushare`."""
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415 - as above

    configure_for_commands()
    ending.run(PROGRAM, lambda: cli(prog_name=PROGRAM))


if __name__ == "__main__":
    main()
