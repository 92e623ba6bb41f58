"""The exact text of `kubectl inspect gpushare`, with and without `-d`, byte for byte the original's.

Source of the formats and of their oddities (the length of the dashes, blanks at line ends): PROTOCOL, part 2 G.
"""

from collections.abc import Sequence
from typing import Final

from scheduler.inspect.columns import aligned
from scheduler.inspect.view import Card, Holder, NodeView

_TAIL: Final = "Allocated/Total GPU Memory In Cluster:"
# More units than this on one card can only be MiB.
_MOST_GIB: Final = 100


def summary(nodes: Sequence[NodeView]) -> str:
    """One line per node."""
    most_cards = max((len(node.cards) for node in nodes), default=0)
    pending = any(node.pending for node in nodes)
    head = "NAME\tIPADDRESS\t" + "".join(f"GPU{i}(Allocated/Total)\t" for i in range(most_cards))
    head += "PENDING(Allocated)\t" if pending else ""
    rows = [_summary_row(node, most_cards, pending=pending) for node in nodes]
    dashes = "-" * (_bytes(rows[:1]) + 20)
    allocated, total, percent = _sums(nodes)
    lines = [f"{head}GPU Memory({_unit(nodes)})\n", *rows, f"{dashes}\n{_TAIL}\n{allocated}/{total} ({percent}%)\t\n"]
    return aligned("".join(lines))


def details(nodes: Sequence[NodeView]) -> str:
    """One table per node, one line per pod."""
    dashes = "-" * (_bytes([_pod_row(nodes[0], holder) for holder in nodes[0].holders]) + 10) if nodes else ""
    allocated, total, percent = _sums(nodes)
    tables = "".join(f"{_node_table(node)}{dashes}\n" for node in nodes)
    return aligned(f"{tables}\n\n{_TAIL}\t{allocated}/{total} ({percent}%)\t\n")


def _summary_row(node: NodeView, most_cards: int, *, pending: bool) -> str:
    cards = [f"{card.allocated}/{card.total}\t" for card in node.cards]
    cards += ["0/0\t"] * (most_cards - len(cards))
    waiting = f"{node.pending or ''}\t" if pending else ""
    return f"{node.name}\t{node.address}\t{''.join(cards)}{waiting}{node.allocated}/{node.total}\n"


def _node_table(node: NodeView) -> str:
    head = "NAME\tNAMESPACE\t" + "".join(f"GPU{card.index}(Allocated)\t" for card in node.cards)
    head += "Pending(Allocated)\t" if node.pending else ""
    rows = "".join(_pod_row(node, holder) for holder in node.holders)
    percent = _percent(node.allocated, node.total)
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{node.address}\n\n{head}\n{rows}"
        f"Allocated :\t{node.allocated} ({percent}%)\t\nTotal :\t{node.total} \t\n"
    )


def _pod_row(node: NodeView, holder: Holder) -> str:
    def on(card: Card) -> str:
        return f"{holder.units.get(card.index, 0)}\t"

    pending = f"{holder.pending}\t" if node.pending else ""
    return f"{holder.name}\t{holder.namespace}\t{''.join(map(on, node.cards))}{pending}\n"


def _sums(nodes: Sequence[NodeView]) -> tuple[int, int, int]:
    allocated, total = sum(node.allocated for node in nodes), sum(node.total for node in nodes)
    return allocated, total, _percent(allocated, total)


def _percent(part: int, whole: int) -> int:
    """Truncated, as the original does; 0 of nothing."""
    return part * 100 // whole if whole else 0


def _unit(nodes: Sequence[NodeView]) -> str:
    per_card = next((node.units_per_card for node in nodes if node.total), 0)
    return "MiB" if per_card > _MOST_GIB else "GiB"


def _bytes(rows: Sequence[str]) -> int:
    return sum(len(row.encode()) for row in rows)
