"""Commands that both programs have: `explain`, `what-if`, `defragment` and `page`."""

from pathlib import Path
from typing import Annotated

import typer

from scheduler.tools.cli.answering import Exit, answering, give_up, named_pod
from scheduler.tools.cli.options import MANIFEST, ClusterFiles, Format
from scheduler.tools.cli.plain import HELP, PlainCommand, PlainGroup
from scheduler.tools.cli.target import Target, on_cluster

_File = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help=MANIFEST)]
_MaxMoves = Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Pods to move at most.")]
_MaxPriority = Annotated[
    int | None,
    typer.Option(metavar="N", help="Move no pod above this priority (default: that of the pod, or 0)."),
]


def add_explain(cli: typer.Typer, program: str) -> None:
    """Add the command `explain` to `cli`; `program` is the prefix of its errors."""
    examples = f"""
        {program} explain USER_POD -n NAMESPACE
        {program} explain NAMESPACE/USER_POD --node NODE
        {program} explain too-big --cluster-file docs/examples/cluster.yaml --cluster-file docs/examples/workload.yaml
    """

    @cli.command(cls=PlainCommand, epilog=examples)
    @on_cluster(program)
    def explain(
        target: Target,
        names: Annotated[list[str], typer.Argument(metavar="POD", help="NAME, pod/NAME or NAMESPACE/NAME.")],
        *,
        node: Annotated[str, typer.Option(metavar="NODE", help="Only this node.")] = "",
        cluster_file: ClusterFiles = None,
        output: Format = None,
    ) -> None:
        """Explain why a pod is pending, and what would help (read-only)."""
        pods = [named_pod(program, name, target.namespace) for name in names]
        if output and len(pods) > 1:
            give_up(program, f"-o {output} takes one pod, found {len(pods)}")
        from scheduler.tools.kubectl.explaining import explain as answer  # noqa: PLC0415 - slow to import

        with answering(program):
            answer(target, cluster_file or (), pods, node=node, output=output)


def add_what_if(cli: typer.Typer, program: str) -> None:
    """Add the command `what-if` to `cli`; `program` is the prefix of its errors."""
    examples = f"""
        {program} what-if -f pod.yaml -n NAMESPACE
        {program} what-if -f pod.yaml --replicas 20
        {program} what-if 20 --replicas 3
        {program} what-if -f docs/examples/whole-card.yaml --cluster-file docs/examples/cluster.yaml
    """

    @cli.command("what-if", cls=PlainCommand, epilog=examples)
    @on_cluster(program)
    def what_if(
        target: Target,
        units: Annotated[
            int | None,
            typer.Argument(min=1, metavar="UNITS", help="GPU memory of a pod of one container, instead of FILE."),
        ] = None,
        *,
        file: _File = None,
        gpu_mem: Annotated[int | None, typer.Option(min=1, metavar="N", help="Same as UNITS.")] = None,
        gpu_count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Cards of such a pod.")] = None,
        replicas: Annotated[
            int, typer.Option("--replicas", "--copies", min=1, max=10_000, metavar="N", help="Copies of the pod.")
        ] = 1,
        cluster_file: ClusterFiles = None,
        output: Format = None,
    ) -> None:
        """Show how many copies of a pod would fit now, and where (read-only)."""
        from scheduler.tools.kubectl.explaining import WhatIfRequest  # noqa: PLC0415 - as above
        from scheduler.tools.kubectl.explaining import what_if as answer  # noqa: PLC0415 - as above

        sources = [one for one in (file, units, gpu_mem) if one is not None]
        if len(sources) != 1 or (file is not None and gpu_count is not None):
            give_up(program, f"expected either -f FILE or an amount, as in `{program} what-if 20`")
        asked = WhatIfRequest(file, units or gpu_mem or 0, gpu_count or 1, replicas)
        with answering(program):
            fits = answer(target, cluster_file or (), asked, output=output)
        raise typer.Exit(Exit.FINE if fits else Exit.FOUND)


class _Defragment(PlainGroup):
    default = "plan"


def add_defragment(cli: typer.Typer, program: str) -> None:
    """Add the commands `defragment plan` and `apply` to `cli`; `program` is the prefix of their errors."""
    group = typer.Typer(
        help="Plan which pods to move so that a pod fits, and move them.",
        cls=_Defragment,
        no_args_is_help=True,
        context_settings=dict(HELP),
    )
    cli.add_typer(group, name="defragment")
    _add_plan(group, program)
    _add_apply(group, program)


def _add_plan(group: typer.Typer, program: str) -> None:
    examples = f"""
        {program} defragment plan -f pod.yaml -n NAMESPACE
        {program} defragment plan --max-moves 3
        {program} defragment plan -f docs/examples/whole-card.yaml --cluster-file docs/examples/half-used.yaml
    """

    @group.command(cls=PlainCommand, epilog=examples)
    @on_cluster(program)
    def plan(
        target: Target,
        *,
        file: _File = None,
        max_moves: _MaxMoves = 10,
        max_priority: _MaxPriority = None,
        cluster_file: ClusterFiles = None,
        output: Format = None,
    ) -> None:
        """Plan which pods to move so that a pod fits (read-only)."""
        from scheduler.tools.defragment.defragment import DefragmentFlags, defragment  # noqa: PLC0415 - as above

        flags = DefragmentFlags(
            file=file,
            cluster=tuple(cluster_file or ()),
            most_moves=max_moves,
            max_priority=max_priority,
            output=output,
        )
        with answering(program):
            found = defragment(target, flags)
        raise typer.Exit(Exit.FINE if found else Exit.FOUND)


def _add_apply(group: typer.Typer, program: str) -> None:
    examples = f"""
        {program} defragment apply -f pod.yaml -n NAMESPACE
        {program} defragment apply --max-moves 3 --timeout 600
    """

    @group.command(cls=PlainCommand, epilog=examples)
    @on_cluster(program)
    def apply(
        target: Target,
        *,
        file: _File = None,
        max_moves: _MaxMoves = 10,
        max_priority: _MaxPriority = None,
        timeout: Annotated[int, typer.Option(min=1, metavar="SECONDS", help="Limit of each move.")] = 300,
        output: Format = None,
    ) -> None:
        """Evict the pods of the plan, one at a time."""
        from scheduler.tools.defragment.defragment import DefragmentFlags, defragment  # noqa: PLC0415 - as above

        flags = DefragmentFlags(
            file=file,
            most_moves=max_moves,
            max_priority=max_priority,
            evicts=True,
            timeout_s=timeout,
            output=output,
        )
        with answering(program):
            found = defragment(target, flags)
        raise typer.Exit(Exit.FINE if found else Exit.FOUND)


def add_page(cli: typer.Typer, program: str) -> None:
    """Add the command `page` to `cli`; `program` is the prefix of its errors."""

    @cli.command(cls=PlainCommand, epilog=f"{program} page\n{program} page --port 8080 --context CONTEXT")
    @on_cluster(program)
    def page(
        target: Target,
        *,
        port: Annotated[
            int, typer.Option(min=0, max=65_535, metavar="PORT", help="Port on 127.0.0.1; 0: any free port.")
        ] = 10_264,
    ) -> None:
        """Show nodes, cards and waiting pods in a browser, until Ctrl-C (read-only)."""
        from scheduler.process.startup import StartupError  # noqa: PLC0415 - as above
        from scheduler.tools.page.page import page as serve  # noqa: PLC0415 - as above

        try:
            with answering(program):
                serve(target, port)
        except StartupError as error:
            give_up(program, str(error))
