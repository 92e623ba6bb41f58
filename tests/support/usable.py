"""Fragmentation as defined in docs/packing.md, for one request and one node in plain Python; shapes to try."""

from collections.abc import Sequence

from hypothesis import strategies as st

from scheduler.plugins.fragmentation.requests_seen import Shape
from scheduler.pods.gpu_request import Selection


def shapes(*, fewest_cards: int) -> st.SearchStrategy[Shape]:
    """Return requests of few sizes, some of which name the model A or exclude it."""
    selections = [Selection(), Selection(frozenset("A")), Selection(excluded=frozenset("A"))]
    return st.builds(
        Shape, st.integers(0, 8_000), st.integers(fewest_cards, 3), st.integers(1, 9), st.sampled_from(selections)
    )


def usable(shape: Shape, free: Sequence[int], models: Sequence[str], cpu: int) -> float:
    """Return the units that pods of this shape can use on cards with these free units, and with free CPU millis."""
    holding = [units for units, model in zip(free, models, strict=True) if shape.models.accepts(model)]
    holding = [units for units in holding if units >= shape.units]
    copies = sum(units // shape.units for units in holding)
    if len(holding) < shape.cards:
        return 0.0
    return sum(holding) * min(1.0, cpu * shape.cards / max(shape.cpu_millis, 1e-9) / copies)
