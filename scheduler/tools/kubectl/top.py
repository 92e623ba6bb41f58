"""`kubectl gpushare top`: memory of nodes, cards, pods and the whole cluster."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NoReturn

import typer

from scheduler.process.output import show, warn
from scheduler.tools.cli.answering import Exit, answering, bare_name, give_up, show_answer, show_document, show_lines
from scheduler.tools.cli.options import Format, NoHeaders, TableFormat, Watch
from scheduler.tools.cli.plain import HELP, KINDS, PlainCommand, PlainGroup
from scheduler.tools.cli.target import Target, on_cluster

if TYPE_CHECKING:
    from scheduler.tools.explain.tones import Line
    from scheduler.tools.explain.top import Top

PROGRAM: Final = "kubectl gpushare"


class _Top(PlainGroup):
    default = "nodes"
    first = ("nodes", "cards", "pods", "cluster")
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {word: (kind,) for word, kind in KINDS.items()}


top = typer.Typer(
    help="Show requested and free GPU memory (read-only).",
    cls=_Top,
    context_settings=dict(HELP),
)

_Nodes = Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Only these nodes.")]
_Cards = Annotated[
    list[str] | None, typer.Argument(metavar="NODE|UUID", help="Only cards of these nodes, or these cards.")
]
_SortBy = Annotated[
    Literal["name", "free", "requested", "most-free", "pods", "fragmented"],
    typer.Option(help="Sort by this, the largest first."),
]
_EXAMPLES: Final = """
    kubectl gpushare top nodes
    kubectl gpushare top nodes NODE -o wide
    kubectl gpushare top nodes --sort-by free --no-headers
"""


@top.command(cls=PlainCommand, epilog=_EXAMPLES)
@on_cluster(PROGRAM)
def nodes(
    target: Target,
    names: _Nodes = None,
    *,
    sort_by: _SortBy = "name",
    output: TableFormat = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
) -> None:
    """Show requested and free GPU memory of each node (read-only)."""
    from scheduler.tools.explain.top_lines import node_lines  # noqa: PLC0415 - slow to import

    if watch:
        _follow(
            target, names or (), sort_by, partial(node_lines, wide=output == "wide"), output, headers=not no_headers
        )
    found = _counted(target, names or (), sort_by)
    if output == "name":
        show(f"node/{node.node}" for node in found.nodes)
    elif not show_document(found, output) and _any(found.nodes, "no nodes with GPU memory"):
        show_lines(node_lines(found, wide=output == "wide"), headers=not no_headers)


@top.command(cls=PlainCommand, epilog=_EXAMPLES.replace("nodes", "cards"))
@on_cluster(PROGRAM)
def cards(
    target: Target,
    names: _Cards = None,
    *,
    sort_by: _SortBy = "name",
    output: TableFormat = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
) -> None:
    """Show requested and free GPU memory of each card (read-only)."""
    from scheduler.tools.explain.top_lines import card_lines  # noqa: PLC0415 - as above

    if watch:
        _follow(
            target, names or (), sort_by, partial(card_lines, wide=output == "wide"), output, headers=not no_headers
        )
    found = _counted(target, names or (), sort_by, "card")
    if output == "name":
        show(f"card/{card.uuid}" for card in found.cards)
    elif not show_document(found, output) and _any(found.cards, "no cards on any node"):
        show_lines(card_lines(found, wide=output == "wide"), headers=not no_headers)


@top.command(cls=PlainCommand, epilog="kubectl gpushare top cluster")
@on_cluster(PROGRAM)
def cluster(target: Target, *, output: Format = None) -> None:
    """Show requested and free GPU memory of the cluster (read-only)."""
    found = _counted(target, (), "name")
    from scheduler.tools.explain.top_lines import cluster_lines  # noqa: PLC0415 - as above

    show_answer(found, cluster_lines(found.cluster), output)


_POD_EXAMPLES: Final = """
    kubectl gpushare top pods -n NAMESPACE
    kubectl gpushare top pods -A --sort-by used
    kubectl gpushare top pods -l app=web -o wide
"""


@top.command(cls=PlainCommand, epilog=_POD_EXAMPLES)
@on_cluster(PROGRAM)
def pods(
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="POD", help="Only these pods.")] = None,
    *,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Pods of all namespaces.")] = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="LABELS", help="Only pods with these labels.")
    ] = "",
    node: Annotated[str, typer.Option(metavar="NODE", help="Only pods on this node.")] = "",
    sort_by: Annotated[
        Literal["name", "requested", "used"], typer.Option(help="Sort by this, the largest first.")
    ] = "name",
    output: TableFormat = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
) -> None:
    """Show how much GPU memory each pod requests and uses (read-only)."""
    from scheduler.tools.explain.held import names_of, pod_lines  # noqa: PLC0415 - as above
    from scheduler.tools.kubectl.holding import Chosen, follow_holding, holding, selected  # noqa: PLC0415

    chosen = Chosen(
        selected(PROGRAM, selector),
        selector,
        frozenset(bare_name(PROGRAM, "pod", name) for name in names or ()),
        bare_name(PROGRAM, "node", node),
        sort_by,
        everywhere=all_namespaces,
    )
    if watch:
        _only_tables(output)
        with answering(PROGRAM):
            follow_holding(target, chosen, wide=output == "wide", headers=not no_headers)
    with answering(PROGRAM):
        found, where = holding(target, chosen)
    if output == "name":
        show(names_of(found))
    elif not show_document(found, output) and _any(found.pods + found.waiting, f"no pods with GPU memory{where}"):
        lines = pod_lines(found, wide=output == "wide", namespaces=all_namespaces)
        show_lines(lines, headers=not no_headers)


def _counted(target: Target, names: Sequence[str], sort_by: str, kind: Literal["node", "card"] = "node") -> "Top":
    """Return the usage of the named nodes, or of all if none is named. Ends the program if one does not exist.

    kind: `card` if a name may also be the UUID of a card.
    """
    from scheduler.tools.cli.asking import ClusterView  # noqa: PLC0415
    from scheduler.tools.cli.session import asked  # noqa: PLC0415
    from scheduler.tools.explain.top import of_nodes, sorted_by  # noqa: PLC0415
    from scheduler.tools.explain.top import top as counted  # noqa: PLC0415
    from scheduler.tools.kubectl.holding import KINDS_OF_TOP  # noqa: PLC0415

    async def ask(of: ClusterView) -> "Top":
        return sorted_by(counted(of.reading.engine), sort_by)

    with answering(PROGRAM):
        found = asked(target, ask, KINDS_OF_TOP)
    wanted = [_bare_name(name, kind) for name in names]
    known = {node.node for node in found.nodes}
    if kind == "card":
        known.update(card.uuid for card in found.cards)
    if missing := sorted(set(wanted) - known):
        what = "node" if kind == "node" else "card or node"
        give_up(PROGRAM, f"there is no {what} {missing[0]} with GPU memory", Exit.FOUND)
    return of_nodes(found, wanted) if wanted else found


def _bare_name(name: str, kind: Literal["node", "card"]) -> str:
    prefix, slash, rest = name.partition("/")
    return rest if slash and kind == "card" and KINDS.get(prefix) == "cards" else bare_name(PROGRAM, "node", name)


def _any(found: Sequence[object], otherwise: str) -> bool:
    """Return whether there is something to show. If not, report it on standard error, like kubectl."""
    if not found:
        warn([otherwise])
    return bool(found)


def _only_tables(output: str | None) -> None:
    if output not in {None, "wide"}:
        give_up(PROGRAM, f"--watch prints tables, not {output}")


def _follow(
    target: Target,
    names: Sequence[str],
    sort_by: str,
    lines: "Callable[[Top], Iterable[Line]]",
    output: str | None,
    *,
    headers: bool,
) -> NoReturn:
    """Print the lines, and those that change, until interrupted."""
    from scheduler.tools.cli.asking import ClusterView  # noqa: PLC0415
    from scheduler.tools.cli.following import follow  # noqa: PLC0415
    from scheduler.tools.explain.top import of_nodes, sorted_by  # noqa: PLC0415
    from scheduler.tools.explain.top import top as counted  # noqa: PLC0415
    from scheduler.tools.kubectl.holding import KINDS_OF_TOP  # noqa: PLC0415

    _only_tables(output)
    wanted = [_bare_name(name, "card") for name in names]

    async def shown(of: ClusterView) -> "Iterable[Line]":
        found = sorted_by(counted(of.reading.engine), sort_by)
        return lines(of_nodes(found, wanted) if wanted else found)

    with answering(PROGRAM):
        follow(target, KINDS_OF_TOP, shown, headers=headers)
    raise typer.Exit
