"""Requests that no card of the cluster could ever hold, and possible replacements."""

from collections.abc import Iterator
from typing import Final

from scheduler.core.engine import Engine
from scheduler.pods.gpu_request import GpuRequest
from scheduler.pods.pod import Pod
from scheduler.state.packing.card_layouts import CardLayouts

_MOST_CARDS: Final = 16


def too_large(engine: Engine, pod: Pod) -> Iterator[str]:
    """A sentence; nothing for a pod that some card could hold."""
    request, layouts = pod.template.gpu_request, engine.tables.target.layouts()
    if request is None or request.units_per_card <= (largest := layouts.largest(request.models)):
        return
    which = "every card of the models that it may have" if request.models else "every card"
    if not largest:
        return
    each = "" if request.cards == 1 else " on each card"
    cards = _enough_cards(request, layouts)
    spread = f", or `gpu-count` {cards}" if cards else ""
    yield f"It is larger than {which} (largest {largest}): ask at most {largest}{each}{spread}."


def _enough_cards(request: GpuRequest, layouts: CardLayouts) -> int:
    """The fewest cards of one node that could hold the pod; 0 where none could.

    Each container is spread evenly: docs/protocol.md, "Requests".
    """
    whole = [units * request.cards for units in (*request.containers, *request.init_containers)]
    for cards in range(request.cards + 1, _MOST_CARDS + 1):
        even = all(units % cards == 0 for units in whole)
        if even and layouts.hold(cards, request.units // cards, request.models):
            return cards
    return 0
