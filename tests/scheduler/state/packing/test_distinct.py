"""Which numbers are different: the same answer by a table as by sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.state.packing.distinct import distinct


@given(st.lists(st.integers(0, 20), max_size=12), st.sampled_from([1, 10**12]))
def test_every_number_is_one_of_the_different_ones(numbers: list[int], scale: int) -> None:
    given_numbers = np.array([numbers, numbers[::-1]], dtype=np.int64) * scale

    values, like = distinct(given_numbers)

    assert values.tolist() == sorted(set(given_numbers.ravel().tolist()))
    assert values[like].tolist() == given_numbers.tolist()
