"""`kubectl gpushare`: the commands and their flags. The implementation of each command is in a separate module."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import typer

from scheduler.process.output import show, show_text
from scheduler.tools.cli import ending
from scheduler.tools.cli.answering import Exit, answering, bare_name, give_up, show_answer
from scheduler.tools.cli.options import Format
from scheduler.tools.cli.plain import HELP, KINDS, PlainCommand, PlainGroup
from scheduler.tools.cli.target import Target, on_cluster
from scheduler.tools.kubectl.completion import COMPLETE, Shell, complete, script
from scheduler.tools.kubectl.shared_commands import add_defragment, add_explain, add_page, add_what_if
from scheduler.tools.kubectl.top import PROGRAM, top

_NODES: Final = [word for word, kind in KINDS.items() if kind == "nodes"]
_CARDS: Final = [word for word, kind in KINDS.items() if kind == "cards"]
_PODS: Final = [word for word, kind in KINDS.items() if kind == "pods"]
_NOT_DRAINED: Final = (
    "cordon keeps new pods off a card; defragment plan shows which pods to move to make room for a new one"
)
_NOT_CREATED: Final = "kubectl apply -f FILE creates a pod; what-if -f FILE shows whether it would fit"

_Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
_Card = Annotated[
    list[str] | None,
    typer.Option(
        *("--card", "--gpu", "--gpus", "--cards"),
        metavar="INDEX|UUID",
        help="Only this card; may be repeated (default: all of the node).",
    ),
]
_All = Annotated[bool, typer.Option("--all", help="All cards of the node, which is the default.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")]


class _Root(PlainGroup):
    first = ("top", "explain", "what-if", "defragment")
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {
        **dict.fromkeys(("get", "list", "ls", "usage"), ("top",)),
        **dict.fromkeys(("describe", "why"), ("explain",)),
        **dict.fromkeys(("fit", "fits", "simulate"), ("what-if",)),
        **dict.fromkeys(("check", "cluster-info", "health", "status"), ("doctor",)),
        **{f"{verb} {word}": ("explain",) for word in _PODS for verb in ("describe", "explain", "why")},
        **{f"describe {word}": ("top", "cards", "-o", "wide") for word in (*_NODES, *_CARDS)},
        "describe cluster": ("top", "cluster"),
        **{f"{verb} {word}": (verb,) for word in _NODES for verb in ("cordon", "uncordon")},
        **{f"{verb} --dry-run": ("what-if",) for verb in ("apply", "create", "run")},
    }
    meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("apply", "create", "run"), _NOT_CREATED),
        **dict.fromkeys(("drain", "evict"), _NOT_DRAINED),
        "events": "did you mean explain?",
        "inspect": "did you mean top cards or top pods?",
        "logs": "did you mean doctor?",
    }


cli = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=dict(HELP),
    epilog="""
        kubectl gpushare top nodes
        kubectl gpushare top pods -A
        kubectl gpushare explain USER_POD -n NAMESPACE
        kubectl gpushare doctor
    """,
)


@cli.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Inspect shared GPUs, and take cards out of use."""
    if version:
        from scheduler.process.build_info import build_info  # noqa: PLC0415 - no other command needs it

        show([f"kubectl-gpushare {build_info()}"])
        raise typer.Exit


cli.add_typer(top, name="top")
add_explain(cli, PROGRAM)
add_what_if(cli, PROGRAM)
add_defragment(cli, PROGRAM)
add_page(cli, PROGRAM)


def _only_one_choice(cards: Sequence[str] | None, *, whole_node: bool) -> None:
    if cards and whole_node:
        give_up(PROGRAM, "expected --card or --all, found both")


@cli.command(
    cls=PlainCommand,
    epilog="""
        kubectl gpushare cordon NODE --card 0
        kubectl gpushare cordon NODE --dry-run
    """,
)
@on_cluster(PROGRAM)
def cordon(
    target: Target, node: _Node, *, card: _Card = None, whole_node: _All = False, dry_run: _DryRun = False
) -> None:
    """Take cards out of use for new pods; their pods stay."""
    from scheduler.tools.cli.cordoning import write  # noqa: PLC0415 - what a command needs alone is slow to import
    from scheduler.tools.explain.cordons import cordoned  # noqa: PLC0415

    _only_one_choice(card, whole_node=whole_node)
    with answering(PROGRAM):
        write(target, cordoned, bare_name(PROGRAM, "node", node), card or (), dry_run=dry_run)


@cli.command(
    cls=PlainCommand,
    epilog="""
        kubectl gpushare uncordon NODE --card 0
        kubectl gpushare uncordon NODE --dry-run
    """,
)
@on_cluster(PROGRAM)
def uncordon(
    target: Target, node: _Node, *, card: _Card = None, whole_node: _All = False, dry_run: _DryRun = False
) -> None:
    """Let new pods use cordoned cards again."""
    from scheduler.tools.cli.cordoning import write  # noqa: PLC0415 - as above
    from scheduler.tools.explain.cordons import uncordoned  # noqa: PLC0415

    _only_one_choice(card, whole_node=whole_node)
    with answering(PROGRAM):
        write(target, uncordoned, bare_name(PROGRAM, "node", node), card or (), dry_run=dry_run)


@cli.command(cls=PlainCommand, epilog="kubectl gpushare audit\nkubectl gpushare audit -o json")
@on_cluster(PROGRAM)
def audit(target: Target, *, output: Format = None) -> None:
    """Find over-committed cards, and pods without a known card (read-only)."""
    from scheduler.kube.port import NODES, PODS  # noqa: PLC0415
    from scheduler.tools.cli.asking import ClusterView  # noqa: PLC0415
    from scheduler.tools.cli.session import asked  # noqa: PLC0415 - as above
    from scheduler.tools.explain.findings import Findings, audited, lines  # noqa: PLC0415

    async def ask(of: ClusterView) -> Findings:
        return audited(of.reading.engine, of.unread)

    with answering(PROGRAM):
        found = asked(target, ask, (NODES, PODS))
    show_answer(found, lines(found), output)
    raise typer.Exit(Exit.FINE if found.clean else Exit.FOUND)


@cli.command(cls=PlainCommand, epilog="kubectl gpushare adopt\nkubectl gpushare adopt -o json")
@on_cluster(PROGRAM)
def adopt(target: Target, *, output: Format = None) -> None:
    """Check whether pods of the legacy extender can be adopted (read-only)."""
    from scheduler.kube.port import NODES, PODS  # noqa: PLC0415
    from scheduler.tools.adoption.adoption import Adoption, adoption, lines  # noqa: PLC0415
    from scheduler.tools.cli.asking import ClusterView  # noqa: PLC0415
    from scheduler.tools.cli.session import asked  # noqa: PLC0415 - as above

    async def ask(of: ClusterView) -> Adoption:
        return adoption(of.reading, tuple(of.unread))

    with answering(PROGRAM):
        found = asked(target, ask, (NODES, PODS))
    show_answer(found, lines(found), output)
    raise typer.Exit(Exit.FINE if found.clean else Exit.FOUND)


@cli.command(cls=PlainCommand, epilog="kubectl gpushare doctor\nkubectl gpushare doctor --context CONTEXT")
@on_cluster(PROGRAM)
def doctor(target: Target, *, output: Format = None) -> None:
    """Check scheduler, device plugins, nodes and pods (read-only)."""
    from scheduler.tools.doctor.cluster_checks import diagnosed  # noqa: PLC0415
    from scheduler.tools.explain.findings import lines  # noqa: PLC0415
    from scheduler.tools.kubectl.diagnosing import facts  # noqa: PLC0415 - as above

    with answering(PROGRAM):
        found = diagnosed(asyncio.run(facts(target)))
    show_answer(found, lines(found), output)
    raise typer.Exit(Exit.FINE if found.clean else Exit.FOUND)


@cli.command(cls=PlainCommand, epilog="kubectl gpushare version\nkubectl gpushare version --client")
@on_cluster(PROGRAM)
def version(
    target: Target,
    *,
    client: Annotated[bool, typer.Option("--client", help="Only of this program.")] = False,
    output: Format = None,
) -> None:
    """Print the versions of this program, scheduler and API server (read-only)."""
    from scheduler.tools.kubectl.versions import versions, version_lines  # noqa: I001, PLC0415 - as above

    with answering(PROGRAM):
        found = versions(target, client_only=client)
    show_answer(found, version_lines(found), output)


@cli.command(cls=PlainCommand, epilog="kubectl gpushare demo\nkubectl gpushare demo --speed 5 --loop")
def demo(
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, metavar="N", help="Seconds of the demo per real second.")
    ] = 1.0,
    loop: Annotated[bool, typer.Option("--loop", help="Start over at the end, until Ctrl-C.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Show the scheduler on a small cluster in memory."""
    from scheduler.tools.demo.demo import demo as show_it  # noqa: PLC0415 - as above

    raise typer.Exit(show_it(sys.stdout, speed=speed, loops=loop))


@cli.command(
    cls=PlainCommand,
    epilog="source <(kubectl gpushare completion bash)\nkubectl gpushare completion fish | source",
)
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of `kubectl-gpushare` for a shell."""
    show_text(script(shell))


def main() -> None:
    """Run the console script `kubectl-gpushare`."""
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415 - as above

    configure_for_commands()
    if sys.argv[1:2] == [COMPLETE]:
        ending.run(PROGRAM, lambda: complete(cli, sys.argv[2:]))
        return
    ending.run(PROGRAM, lambda: cli(prog_name=PROGRAM))


def completing() -> None:
    """Run the console script `kubectl_complete-gpushare`."""
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415 - as above

    configure_for_commands()
    ending.run("kubectl_complete-gpushare", lambda: complete(cli, sys.argv[1:]))


if __name__ == "__main__":
    main()
