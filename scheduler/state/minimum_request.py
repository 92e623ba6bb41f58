"""Minimum request of a class of waiting pods: a row that lacks any part of it cannot take them."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from scheduler.pods.gpu_request import GpuRequest, Selection
from scheduler.state.amounts import ANY_BIT, BITS, NOTHING, Amount, model_bit, row_bits, uuid_bit
from scheduler.state.cards.node_inventory import accepted_codes
from scheduler.state.columns.arrays import BoolArray, Int64Array

# With more rows than this, too many other rows share their bits.
_MOST_ROWS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumRequest:
    """Minimum request. amounts: int64[amounts], the minimum of each amount that must be available.

    cards: number of cards with Amount.CARD_UNITS each, 0 if that amount is sufficient. exclusive: whether no pod
    may hold them. models, uuids: bits of the acceptable cards. traits: of each card. rows: bits of the rows that the
    node's own fields allow.
    """

    amounts: Int64Array
    cards: int = 0
    exclusive: bool = False
    models: int = ANY_BIT
    uuids: int = ANY_BIT
    traits: int = 0
    rows: tuple[int, int] = (ANY_BIT, ANY_BIT)


NO_MINIMUM: Final = MinimumRequest(amounts=np.full(len(Amount), NOTHING, dtype=np.int64))


def minimum_request_of(
    minimum: Int64Array, request: GpuRequest | None, model_code: dict[str, int], allowed: BoolArray | None
) -> MinimumRequest:
    """Minimum request of a class. model_code: codes of the models seen so far.

    allowed: bool[nodes], None if unknown.
    """
    rows = _rows(allowed)
    if request is None or _any_card_will_do(request):
        return MinimumRequest(amounts=minimum, rows=rows)
    return MinimumRequest(
        amounts=minimum,
        cards=request.cards,
        exclusive=request.exclusive,
        models=_models(request.models, model_code),
        uuids=reduce(or_, map(uuid_bit, request.uuids.wanted), 0) or ANY_BIT,
        traits=request.traits,
        rows=rows,
    )


def _any_card_will_do(request: GpuRequest) -> bool:
    # A request for several cards has the trait WHOLE.
    return not (request.exclusive or request.traits or request.models or request.uuids)


def _models(asked: Selection, model_code: dict[str, int]) -> int:
    if not asked:
        return ANY_BIT
    codes = accepted_codes(asked, model_code)[: 1 + len(model_code)].nonzero()[0]
    # Codes beyond the last bit share it, as codes of later models do.
    seen = reduce(or_, map(model_bit, codes[:BITS].tolist()), 0)
    # Any model may be announced later; codes ascend from 1.
    return seen | (ANY_BIT << min(1 + len(model_code), BITS - 1))


def _rows(allowed: BoolArray | None) -> tuple[int, int]:
    if allowed is None or np.count_nonzero(allowed) > _MOST_ROWS:
        return ANY_BIT, ANY_BIT
    low = high = 0
    for row in np.flatnonzero(allowed).tolist():
        low, high = low | row_bits(row)[0], high | row_bits(row)[1]
    return low, high
