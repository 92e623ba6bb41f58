"""The commands that both programs have, and the flags of all that ask a cluster."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from scheduler.tools.cli.answering import Exit, answering, configured, connection_flags, give_up, named_pod

Config = Annotated[Path | None, typer.Option(help="The scheduler's configuration file, where it has one.")]
Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")]


def add_explain(cli: typer.Typer, program: str) -> None:
    """Add the command `explain` to `cli`; `program` is the prefix of its errors."""

    @cli.command()
    def explain(
        pod: Annotated[str, typer.Argument(metavar="POD", help="Name of the pod; also pod/NAME or NAMESPACE/NAME.")],
        *,
        namespace: Annotated[
            str, typer.Option("--namespace", "-n", help="Its namespace (default: the context's).")
        ] = "",
        node: Annotated[str, typer.Option(help="Look at this node only.")] = "",
        config: Config = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        output: Output = "table",
    ) -> None:
        """Say why a pod waits: per node and card what is free, what is in the way, and what would help. Only reads."""
        namespace, name = named_pod(program, pod, namespace)
        configuration = configured(program, config, connection_flags(kubeconfig, context))
        from scheduler.tools.cli.explain import explain as answer  # noqa: PLC0415 - what a command needs is slow to import

        with answering(program):
            answer(configuration, os.environ, namespace=namespace, name=name, node=node, output=output)


def add_what_if(cli: typer.Typer, program: str) -> None:
    """Add the command `what-if` to `cli`; `program` is the prefix of its errors."""

    @cli.command("what-if")
    def what_if(
        *,
        file: Annotated[
            Path, typer.Option("--file", "-f", help="Manifest of a pod or a workload; - for standard input.")
        ],
        replicas: Annotated[int, typer.Option(min=1, max=10_000, help="How many copies.")] = 1,
        config: Config = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        output: Output = "table",
    ) -> None:
        """Say how many copies of a pod would fit now, where, and what stops the next. Only reads."""
        configuration = configured(program, config, connection_flags(kubeconfig, context))
        from scheduler.tools.cli.explain import what_if as answer  # noqa: PLC0415 - as above

        with answering(program):
            answer(configuration, os.environ, file=file, replicas=replicas, output=output)


def add_defragment(cli: typer.Typer, program: str) -> None:
    """Add the command `defragment` to `cli`; `program` is the prefix of its errors."""

    @cli.command()
    def defragment(
        *,
        file: Annotated[
            Path | None, typer.Option("--file", "-f", help="Make room for this pod or workload; - for standard input.")
        ] = None,
        cluster: Annotated[
            list[Path] | None,
            typer.Option(metavar="CLUSTER.yaml", help="Plan for cluster files instead of a cluster."),
        ] = None,
        max_moves: Annotated[int, typer.Option(min=1, max=100, help="Pods that are moved at most.")] = 10,
        max_priority: Annotated[
            int | None, typer.Option(help="Of pods that are moved (default: that of the pod, or 0 without one).")
        ] = None,
        execute: Annotated[
            bool, typer.Option("--execute/--dry-run", help="Evict the pods, one at a time; or only say which.")
        ] = False,
        timeout: Annotated[int, typer.Option(min=1, help="Seconds for each move.")] = 300,
        config: Config = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        output: Output = "table",
    ) -> None:
        """Say which pods to move, and where, so that a pod fits, or usual pods can use more; --execute evicts them."""
        if execute and cluster:
            give_up(program, "--execute needs a cluster: a cluster file is only planned for")
        configuration = configured(program, config, connection_flags(kubeconfig, context))
        from scheduler.tools.defragment.defragment import DefragmentFlags, defragment as answer  # noqa: I001, PLC0415 - as above

        flags = DefragmentFlags(
            file=file,
            cluster=tuple(cluster or ()),
            most_moves=max_moves,
            max_priority=max_priority,
            evicts=execute,
            timeout_s=timeout,
            output=output,
        )
        with answering(program):
            found = answer(program, configuration, os.environ, flags)
        raise typer.Exit(Exit.FINE if found else Exit.FOUND)
