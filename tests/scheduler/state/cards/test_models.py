"""Models that a pod may have, by code: as the selection says of each name, whoever has announced how many."""

from functools import reduce
from operator import or_

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.pods.gpu_request import GpuRequest, Selection
from scheduler.state.amounts import ANY_BIT, BITS, model_bit
from scheduler.state.cards.node_inventory import accepted_codes
from scheduler.state.minimum_request import NO_MINIMUM, minimum_request_of

NAMES = st.frozensets(st.sampled_from(["m0", "m1", "m7", "m61", "m62", "m70", "unknown"]))
SELECTIONS = st.builds(Selection, NAMES, NAMES)


def codes_of(models: int) -> dict[str, int]:
    return {f"m{number}": 1 + number for number in range(models)}


@given(SELECTIONS, st.integers(0, 80))
def test_each_code_is_accepted_as_its_name_is(asked: Selection, models: int) -> None:
    accepts = [asked.accepts(name) for name in codes_of(models)]
    assert accepted_codes(asked, codes_of(models)).tolist() == [False, *accepts, not asked.wanted]


@given(SELECTIONS, st.sampled_from([0, 1, 60, 61, 62, 63, 80]))
def test_a_waiting_pod_needs_the_bits_of_all_models_that_it_may_have(asked: Selection, models: int) -> None:
    codes = codes_of(models)
    request = GpuRequest(cards=1, units_per_card=1, containers=(1,), init_containers=(), models=asked)
    seen = reduce(or_, (model_bit(code) for name, code in codes.items() if asked.accepts(name)), 0)
    expected = seen | (ANY_BIT << min(1 + models, BITS - 1)) if asked else ANY_BIT
    assert minimum_request_of(NO_MINIMUM.amounts, request, codes, None).models == expected


@pytest.mark.parametrize("wanted", [True, False])
def test_no_card_is_of_no_model(*, wanted: bool) -> None:
    names = frozenset({"m1"})
    asked = Selection(names) if wanted else Selection(excluded=names)
    assert accepted_codes(asked, codes_of(3))[np.array([0, 2])].tolist() == [False, wanted]
