from io import StringIO
from typing import Final

from rich.console import Console, RenderableType

from config.protocol.inventory import Health
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.cards.booking import CardShare
from scheduler.state.tables import Tables
from scheduler.tools.demo.demo_log import LogLine, LogTone
from scheduler.tools.demo.picture import Painter, Scene
from tests.support.builders import bound, card, pod, wire_node

WIDTH: Final = 64  # leaves 20 columns for the bars


def tables() -> Tables:
    """Node a: 20 units with 5 of one and 10 of another, and an unhealthy card of 10; node b: one empty card of 8."""
    made = Tables(ResourceNames(), 1024)
    made.upsert_node(wire_node("a", [card(0, 20, model="NVIDIA-A100-SXM4-80GB"), card(1, 10, health=Health.UNHEALTHY)]))
    made.upsert_node(wire_node("b", [8]))
    for name, units in (("one", 5), ("another", 10)):
        made.assume(pod(name, units), made.row_of["a"], (CardShare(0, "GPU-a-0", units),))
    return made


def painted(picture: RenderableType, width: int = WIDTH) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(picture)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def scene(waiting: dict[str, str] | None = None, lines: int = 0) -> Scene:
    told = [LogLine(float(number), LogTone.BOUND, f"pod-{number} to a") for number in range(lines)]
    return Scene("title", tables(), waiting or {}, told)


def test_each_pod_has_its_share_of_the_bar_with_its_name() -> None:
    assert painted(Painter().cards(tables(), WIDTH))[1:] == [
        "a    0 A100 one ▕another  ▕····· 15/20 healthy",
        "     1 M    xxxxxxxxxxxxxxxxxxxx  0/10 unhealthy",
        "b    0 M    ····················   0/8 healthy",
    ]


def test_a_pod_whose_card_is_unknown_is_on_every_card_of_its_node() -> None:
    made = tables()
    made.add(bound(pod("lost", 4), "b"))
    made.upsert_node(wire_node("b", [8, 8]))
    shown = painted(Painter().cards(made, WIDTH))[3:]
    assert ["lost     ▕" in line for line in shown] == [True, True]


def test_a_card_that_is_gone_is_shown_as_lost_while_a_pod_holds_it() -> None:
    made = tables()
    made.upsert_node(wire_node("a", [card(1, 10)]))
    assert any(line.endswith("15/0 lost") for line in painted(Painter().cards(made, WIDTH)))


def test_pods_keep_their_colours() -> None:
    painter, out = Painter(), StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=True, color_system="256")
    console.print(painter.cards(tables(), WIDTH))
    first = out.getvalue()
    console.print(painter.cards(tables(), WIDTH))
    assert out.getvalue() == first * 2
    assert "\x1b[30;48;5;117mone ▕" in first


def test_the_picture_never_has_more_lines_than_there_are() -> None:
    waiting = {f"pod-{number}": "0/2 nodes are available: " + "words " * 20 for number in range(9)}
    for width in (70, 140):
        for height in (14, 24, 50):
            assert len(painted(Painter().whole(scene(waiting, 90), width, height), width)) <= height


def test_waiting_pods_are_shown_without_the_constant_part_of_the_message() -> None:
    reason = "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 9, most free 8 (of 8)."
    assert "big: 2 Insufficient GPU memory on one card: wants 9, most free" in " ".join(
        painted(Painter().whole(scene({"big": reason}), WIDTH, 40))
    )


def test_the_newest_decision_comes_first() -> None:
    shown = [line for line in painted(Painter().whole(scene(lines=3), WIDTH, 40)) if "bound" in line]
    assert [line.split()[2] for line in shown] == ["pod-2", "pod-1", "pod-0"]
