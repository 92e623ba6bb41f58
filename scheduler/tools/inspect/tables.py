"""Exact text of `kubectl inspect gpushare`, with and without `-d`, identical to the legacy output byte by byte. Pure.

The formats and their oddities (the length of the dashes, blanks at line ends, the guessed unit) are described in
docs/develop/protocol.md, "The output of kubectl inspect gpushare". Nodes without allocatable GPU memory have no row in
the legacy text. Below it, where the legacy command prints nothing, this output adds such nodes if pods hold units of
them, and the cards that take no new pods. Tabs are aligned like Go's text/tabwriter with `NewWriter(out, 0, 0, 2, ' ',
0)`. Source: go/src/text/tabwriter, the package's documentation.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from config.protocol.inventory import MAX_CARDS
from scheduler.process.terminal import one_line, some
from scheduler.tools.inspect.view import Holder, InspectedCard, InspectedNode

_TAIL: Final = "Allocated/Total GPU Memory In Cluster:"
_NOT_IN_THE_SUM: Final = "Not in this sum: nodes with pods but without allocatable GPU memory."
# Above this many units per card, the legacy command prints MiB; it knew no card with 141 GiB.
_MOST_GIB: Final = 100
_OUT_OF_USE: Final = "Cards that take no new pods:"
_NOT_ALLOCATABLE: Final = (
    "The totals above leave out the memory of unhealthy and suspect cards, but count the pods on them."
)
_MOST_NAMES: Final = 3
_NO_CARD: Final = InspectedCard(-1, 0)
_PADDING: Final = 2


def summary(nodes: Sequence[InspectedNode], *, named: bool = False) -> str:
    """Return one line for each node. named: the user named them; then nodes without a row also widen the table."""
    shown = _shown(nodes)
    columns = _columns(nodes if named else shown)
    head = "NAME\tIPADDRESS\t" + "".join(f"GPU{index}(Allocated/Total)\t" for index in columns)
    pending = any(node.pending for node in shown)
    head += "PENDING(Allocated)\t" if pending else ""
    rows = [_summary_row(node, columns, pending=pending) for node in shown]
    dashes = "-" * (_bytes(rows[:1]) + 20) if rows else ""
    return aligned(
        f"{head}GPU Memory({_unit(shown)})\n{''.join(rows)}{dashes}\n{_TAIL}\n{_sum(shown)}\t\n{_left_out(nodes)}"
        f"{_out_of_use(nodes, named=named)}"
    )


def details(nodes: Sequence[InspectedNode], *, named: bool = False) -> str:
    """Return one table for each node, with one line for each pod. named: whether the user named the nodes."""
    shown = _shown(nodes)
    dashes = "-" * (_bytes([_pod_row(node, holder) for node in shown[:1] for holder in node.holders]) + 10)
    tables = "".join(f"{_node_table(node)}{dashes}\n" for node in shown)
    others = "".join(f"{_node_table(node)}{'-' * 10}\n" for node in _without_row(nodes))
    below = f"\n{_NOT_IN_THE_SUM}\n{others}" if others else ""
    return aligned(f"{tables}\n\n{_TAIL}\t{_sum(shown)}\t\n{below}{_out_of_use(nodes, named=named)}")


def _left_out(nodes: Sequence[InspectedNode]) -> str:
    """Return nodes with pods that the legacy command does not show; "" if there are none."""
    rows = [
        f"{node.name}\t{one_line(node.address)}\t{node.allocated}\t{one_line(node.problem)}\n"
        for node in _without_row(nodes)
    ]
    return f"\n{_NOT_IN_THE_SUM}\nNAME\tIPADDRESS\tAllocated\tWHY\n{''.join(rows)}" if rows else ""


def _out_of_use(nodes: Sequence[InspectedNode], *, named: bool) -> str:
    """Return the cards that take no new pods, and the sum with their memory; "" if every card takes some."""
    rows = [
        f"{node.name}\t{card.index}\t{card.allocated}/{card.total}\t{one_line(why)}\t{one_line(card.uuid or '-')}\n"
        for node in nodes
        for card in node.cards
        if (why := card.out or card.without_units)
    ]
    head = f"\n{_OUT_OF_USE}\nNAME\tCARD\tAllocated/Total\tWHY\tUUID\n"
    return f"{head}{''.join(rows)}{_sum_with_all_cards(_shown(nodes), named=named)}" if rows else ""


def _sum_with_all_cards(nodes: Sequence[InspectedNode], *, named: bool) -> str:
    """Return a line with the sum over all cards of these nodes; "" if the legacy sum already includes all of them."""
    if not any(card.not_offered and card.total for node in nodes for card in node.cards):
        return ""
    totals = [
        sum(card.total for card in node.cards) if any(card.not_offered for card in node.cards) else node.total
        for node in nodes
    ]
    allocated, total = sum(node.allocated for node in nodes), sum(totals)
    where = f"on {some([node.name for node in nodes], _MOST_NAMES)}" if named else "in the cluster"
    return f"{_NOT_ALLOCATABLE}\nWith that memory: {allocated}/{total} ({_percent(allocated, total)}%) {where}.\n"


def _without_row(nodes: Sequence[InspectedNode]) -> list[InspectedNode]:
    return [node for node in nodes if node.total <= 0 and node.holders]


def _shown(nodes: Sequence[InspectedNode]) -> list[InspectedNode]:
    return [node for node in nodes if node.total > 0]


def _columns(nodes: Iterable[InspectedNode]) -> list[int]:
    """Return the indexes with a column: all up to the largest of a whole card, then those of MIG instances."""
    indexes = {card.index for node in nodes for card in node.cards}
    whole = max((index for index in indexes if index < MAX_CARDS), default=-1)
    return [*range(whole + 1), *sorted(index for index in indexes if index >= MAX_CARDS)]


def _summary_row(node: InspectedNode, columns: Sequence[int], *, pending: bool) -> str:
    by_index = {card.index: card for card in node.cards}
    cards = [by_index.get(index, _NO_CARD) for index in columns]
    cells = "".join(f"{card.allocated}/{card.total}\t" for card in cards)
    cells += f"{node.pending or ''}\t" if pending else ""
    return f"{node.name}\t{one_line(node.address)}\t{cells}{node.allocated}/{node.total}\n"


def _node_table(node: InspectedNode) -> str:
    head = "NAME\tNAMESPACE\t" + "".join(f"GPU{card.index}(Allocated)\t" for card in node.cards)
    head += "Pending(Allocated)\t" if node.pending else ""
    rows = "".join(_pod_row(node, holder) for holder in node.holders)
    why = "" if node.total > 0 else f"WHY:\t{one_line(node.problem)}\n"
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{one_line(node.address)}\n{why}\n{head}\n{rows}"
        f"Allocated :\t{node.allocated} ({_percent(node.allocated, node.total)}%)\t\nTotal :\t{node.total} \t\n"
    )


def _pod_row(node: InspectedNode, holder: Holder) -> str:
    cells = "".join(f"{holder.units.get(card.index, 0)}\t" for card in node.cards)
    cells += f"{holder.pending}\t" if node.pending else ""
    return f"{holder.name}\t{holder.namespace}\t{cells}\n"


def _sum(nodes: Sequence[InspectedNode]) -> str:
    allocated, total = sum(node.allocated for node in nodes), sum(node.total for node in nodes)
    return f"{allocated}/{total} ({_percent(allocated, total)}%)"


def _percent(part: int, whole: int) -> int:
    """Return a truncated percentage, 0 if `whole` is 0.

    Uses floating point like the legacy command: 29 of 100 give 28 %.
    """
    return int(part / whole * 100) if whole else 0


def _unit(nodes: Sequence[InspectedNode]) -> str:
    """Return the unit of the first node that has cards, for the whole table."""
    per_card = next((node.total // len(node.cards) for node in nodes if node.cards), 0)
    return "MiB" if per_card > _MOST_GIB else "GiB"


def _bytes(rows: Sequence[str]) -> int:
    return sum(len(row.encode()) for row in rows)


def aligned(text: str) -> str:
    """Replace the tabs in `text` with blanks.

    A cell ends with a tab; text after the last tab of a line is not a cell. A column is as wide as the widest cell of
    the consecutive lines that have it, plus two blanks.
    """
    lines = [line.split("\t") for line in text.split("\n")]
    widths: list[list[int]] = [[] for _ in lines]
    _measure(lines, widths, 0, len(lines), 0)
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(cells, wide, strict=False)) + cells[-1]
        for cells, wide in zip(lines, widths, strict=True)
    )


def _measure(lines: list[list[str]], widths: list[list[int]], begin: int, end: int, column: int) -> None:
    """Append the width of `column` to every line from `begin` to `end` that has it, block by block; then go right."""
    row = begin
    while row < end:
        if len(lines[row]) <= column + 1:
            row += 1
            continue
        stop = row
        while stop < end and len(lines[stop]) > column + 1:
            stop += 1
        width = max(len(cells[column]) for cells in lines[row:stop]) + _PADDING
        for wide in widths[row:stop]:
            wide.append(width)
        _measure(lines, widths, row, stop, column + 1)
        row = stop
