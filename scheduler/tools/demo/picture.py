"""Picture of the demo and its screen: cards with a block for each pod, waiting pods, the last decisions."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from config.protocol.inventory import Health
from scheduler.state.cards.card_columns import CardOnNode
from scheduler.state.tables import Tables
from scheduler.tools.cli.console import Console
from scheduler.tools.demo.claims import Assertion
from scheduler.tools.demo.demo_log import LogLine, LogTone

_COLOURS: Final = (
    "sky_blue1", "gold1", "light_green", "orchid1", "light_salmon1", "pale_turquoise1",
    "khaki1", "plum2", "dark_sea_green2", "light_pink1", "wheat1", "cornflower_blue",
)  # fmt: skip
_TONES: Final = {LogTone.BOUND: "green", LogTone.WAITS: "yellow", LogTone.CLUSTER: "cyan"}
_SIDE_BY_SIDE: Final = 130  # columns from which the lists fit next to the cards
_LISTS: Final = 50  # minimum columns of the lists in that case
_FEWEST_LINES: Final = 4  # minimum lines of decisions
_LONGEST_BAR: Final = 60
_BESIDE_THE_BAR: Final = 44  # columns of names, numbers and health


@dataclass(frozen=True, slots=True)
class Scene:
    """Content of the picture. title: one line. waiting: pod -> why. lines: oldest first."""

    title: str
    tables: Tables
    waiting: Mapping[str, str]
    lines: Sequence[LogLine]


class Painter:
    """Draws the picture; each pod keeps its color."""

    def __init__(self) -> None:
        self._colour_of: dict[str, str] = {}

    def whole(self, scene: Scene, width: int, height: int) -> RenderableType:
        """Draw everything, in `width` columns and at most `height` lines."""
        title = Text(scene.title, style="bold", no_wrap=True, overflow="ellipsis")
        if width >= _SIDE_BY_SIDE:
            of_cards = min(_LONGEST_BAR + _BESIDE_THE_BAR, width - _LISTS - 2)
            of_lists = width - of_cards - 2
            beside = Table.grid(padding=(0, 2, 0, 0))
            beside.add_column(width=of_cards)
            beside.add_column(width=of_lists)
            beside.add_row(self.cards(scene.tables, of_cards), _lists(scene, of_lists, height - 3))
            return Group(title, Text(), beside)
        left = height - cards_height(scene.tables) - 3
        return Group(title, Text(), self.cards(scene.tables, width), Text(), _lists(scene, width, left))

    def cards(self, tables: Tables, width: int) -> Table:
        """Draw one row for each card, by node and index."""
        bar = max(10, min(_LONGEST_BAR, width - _BESIDE_THE_BAR))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for title in ("NODE", "CARD", "PODS", "USED", "HEALTH"):
            table.add_column(title, no_wrap=True, justify="right" if title == "USED" else "left")
        for node, row in sorted(tables.row_of.items()):
            blocks, lost = _blocks(tables, node), _lost_blocks(tables, node)
            for number, slot in enumerate(tables.cards.slots[row]):
                units = int(tables.cards.stored.units[number, row])
                used = units - int(tables.cards.stored.free[number, row])
                label = f"{slot.card.index} {_short(slot.card.model)}".rstrip()
                health = _health(slot)
                bar_text = self._bar(blocks.get(number, []), units, bar, unhealthy=health.plain != "healthy")
                table.add_row(node if number == 0 else "", label, bar_text, f"{used}/{units}", health)
            for number, (uuid, gone) in enumerate(tables.cards.lost_cards(row).items(), len(tables.cards.slots[row])):
                bar_text = self._bar(lost.get(uuid, []), 0, bar, unhealthy=True)
                health = Text("lost", style="bold red")
                table.add_row(node if number == 0 else "", str(gone.index), bar_text, f"{gone.units}/0", health)
        return table

    def _bar(self, blocks: Iterable[tuple[str, int]], units: int, width: int, *, unhealthy: bool) -> Text:
        """Draw each pod as long as its share of the card, and free memory as dots."""
        bar, taken = Text(no_wrap=True), 0
        for pod, own in blocks:
            begin = min(width, round(taken * width / max(units, 1)))
            taken += own
            cells = min(width, round(taken * width / max(units, 1))) - begin
            bar.append(_block(pod, cells), style=f"black on {self._colour(pod)}")
        return bar.append(
            ("x" if unhealthy else "·") * (width - len(bar)), style="red" if unhealthy else "bright_black"
        )

    def _colour(self, pod: str) -> str:
        return self._colour_of.setdefault(pod, _COLOURS[len(self._colour_of) % len(_COLOURS)])


def cards_height(tables: Tables) -> int:
    """Return the number of lines that the cards take."""
    cards = tables.cards
    return 1 + sum(len(cards.slots[row]) + len(cards.lost_cards(row)) for row in tables.row_of.values())


def _blocks(tables: Tables, node: str) -> dict[int, list[tuple[str, int]]]:
    """Map slots to (pod, units) for each pod there; a pod with an unknown card is on all of them."""
    blocks: dict[int, list[tuple[str, int]]] = {}
    for record in tables.records():
        if record.node != node or record.held is None:
            continue
        for number, units in record.held.places:
            blocks.setdefault(number, []).append((record.pod.key.name, units))
    return blocks


def _lost_blocks(tables: Tables, node: str) -> dict[str, list[tuple[str, int]]]:
    """Map UUIDs to (pod, units) for each pod on a card that the node does not announce."""
    blocks: dict[str, list[tuple[str, int]]] = {}
    for record in tables.records():
        if record.node == node and record.held is not None:
            for uuid, units in record.held.lost:
                blocks.setdefault(uuid, []).append((record.pod.key.name, units))
    return blocks


def _block(pod: str, cells: int) -> str:
    """Return the pod's name, cut to its width, with an edge before the next block."""
    return pod[: cells - 1].ljust(cells - 1) + "▕" if cells > 0 else ""


def _short(model: str) -> str:
    """Shorten a model: `NVIDIA-A100-SXM4-80GB` -> `A100`, `Tesla-T4` -> `T4`."""
    parts = model.split("-")
    return parts[1] if len(parts) > 1 else model


def _health(slot: CardOnNode) -> Text:
    card = slot.card
    health = f"{card.health.value} {card.reason}".rstrip()
    return Text(health, style="green" if card.health is Health.HEALTHY else "bold red")


def _lists(scene: Scene, width: int, height: int) -> Group:
    waiting = _waiting_lines(scene.waiting, width, max(1, height - _FEWEST_LINES - 2))
    left = max(1, height - len(waiting) - 3)
    decisions = [_decision(line) for line in scene.lines[-left:]]
    none = [Text("none", style="bright_black")]
    parts = [Text("WAITING", style="bold"), *(waiting or none), Text(), Text("LAST DECISIONS", style="bold")]
    return Group(*parts, *reversed(decisions))


def _waiting_lines(waiting: Mapping[str, str], width: int, at_most: int) -> list[Text]:
    """Return one wrapped entry after another, as many as fit into the lines."""
    console, lines = Console(width=width), list[Text]()
    for pod, why in waiting.items():
        reason = why.partition(" nodes are available: ")[2] or why
        entry = Text.assemble((f"{pod}: ", "bold yellow"), reason.removesuffix("."))
        wrapped = entry.wrap(console, width)
        if len(lines) + len(wrapped) > at_most:
            lines.append(Text(f"… {len(waiting)} in all", style="yellow"))
            break
        lines += list(wrapped)
    return lines


def _decision(line: LogLine) -> Text:
    shown = line.text.replace(" nodes are available: ", ": ") if line.tone is LogTone.WAITS else line.text
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{line.at_s:5.1f}s ", style="bright_black")
    return text.append(f"{line.tone.value:7} ", style=_TONES[line.tone]).append(shown)


_PIPED_WIDTH: Final = 110
_HEADING: Final = "What this demo showed (each line was checked):"
_ECHO: Final = 3  # columns left free for the ^C that a terminal echoes: a line that wraps would garble the picture


class Screen(Protocol):
    """Display of the demo."""

    def opened(self) -> contextlib.AbstractContextManager[object]:
        """Show the display while this context is entered."""

    def tell(self, line: LogLine) -> None:
        """Show a line about something that has happened."""

    def draw(self, scene: Scene) -> None:
        """Draw the current state."""

    def close(self, scene: Scene, shown: Sequence[Assertion]) -> None:
        """Show the final state of the cards, and the claims."""


def screen(out: TextIO) -> Screen:
    """Return the display for `out`."""
    console = Console(out)
    return _Picture(console) if console.is_terminal and not console.is_dumb_terminal else _Lines(out)


class _Picture:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._painter = Painter()
        self._live = Live(console=console, auto_refresh=False)

    def opened(self) -> contextlib.AbstractContextManager[object]:
        return self._live

    def tell(self, line: LogLine) -> None:
        """Do nothing: the picture shows the last lines."""

    def draw(self, scene: Scene) -> None:
        size = self._console.size
        self._live.update(self._painter.whole(scene, size.width - _ECHO, size.height - 1), refresh=True)

    def close(self, scene: Scene, shown: Sequence[Assertion]) -> None:  # noqa: ARG002 - the last picture stays
        if not shown:
            return
        self._console.print()
        self._console.print(_HEADING, style="bold")
        for claim in shown:
            line = Table.grid(padding=(0, 1, 0, 0))
            mark = Text("+", style="green") if claim.holds else Text("FALSE", style="bold red")
            line.add_row(mark, Text(claim.sentence))
            self._console.print(line)


class _Lines:
    def __init__(self, out: TextIO) -> None:
        self._console = Console(out, width=_PIPED_WIDTH)

    def opened(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def tell(self, line: LogLine) -> None:
        self._console.print(f"{line.at_s:5.1f}s {line.tone.value:7} {line.text}", soft_wrap=True)

    def draw(self, scene: Scene) -> None:
        """Do nothing: each line was printed."""

    def close(self, scene: Scene, shown: Sequence[Assertion]) -> None:
        self._console.print()
        self._console.print(Painter().cards(scene.tables, _PIPED_WIDTH))
        if shown:
            self._console.print(f"\n{_HEADING}")
        for claim in shown:
            self._console.print(f"{'+' if claim.holds else 'FALSE'} {claim.sentence}", soft_wrap=True)
