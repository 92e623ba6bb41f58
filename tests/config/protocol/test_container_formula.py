"""The container formula: a table of cases, and hypothesis against a plain reading of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol.container_formula import ContainerKind, init_kind, peak_amounts

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


@pytest.mark.parametrize(
    ("containers", "peak"),
    [
        pytest.param([], {}, id="no container"),
        pytest.param([({}, APP)], {}, id="nothing asked"),
        pytest.param([({"a": 0}, INIT), ({"a": 0}, APP)], {}, id="nothing is left out"),
        pytest.param([({"a": 1}, APP), ({"a": 2}, APP)], {"a": 3}, id="apps add up"),
        pytest.param([({"a": 3}, INIT), ({"a": 1}, APP)], {"a": 3}, id="a larger init container"),
        pytest.param([({"a": 3}, INIT), ({"a": 2}, APP), ({"a": 2}, APP)], {"a": 4}, id="a smaller init container"),
        pytest.param([({"a": 3}, INIT), ({"a": 2}, INIT), ({"a": 1}, APP)], {"a": 3}, id="inits one after the other"),
        pytest.param([({"a": 2}, SIDECAR), ({"a": 1}, APP)], {"a": 3}, id="a sidecar runs beside the apps"),
        pytest.param([({"a": 2}, SIDECAR), ({"a": 4}, INIT), ({"a": 1}, APP)], {"a": 6}, id="beside later inits"),
        pytest.param([({"a": 4}, INIT), ({"a": 2}, SIDECAR), ({"a": 1}, APP)], {"a": 4}, id="not beside earlier ones"),
        pytest.param([({"a": 2}, INIT), ({"b": 2}, APP)], {"a": 2, "b": 2}, id="each key alone"),
        pytest.param([({0: 1}, SIDECAR), ({1: 5}, INIT), ({0: 1}, APP)], {0: 2, 1: 5}, id="cards as keys"),
    ],
)
def test_the_peak_of_a_pods_life(containers: list[tuple[dict[str, int], ContainerKind]], peak: dict[str, int]) -> None:
    assert peak_amounts(containers) == peak


def test_an_init_container_that_always_restarts_is_a_sidecar() -> None:
    assert [init_kind(policy) for policy in ("Always", "", "OnFailure")] == [SIDECAR, INIT, INIT]


amounts = st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))


@given(st.lists(st.tuples(amounts, st.sampled_from([INIT, SIDECAR]))), st.lists(amounts))
def test_it_is_the_larger_of_the_end_and_each_start(
    init: list[tuple[dict[str, int], ContainerKind]], apps: list[dict[str, int]]
) -> None:
    for key in "ab":
        lasting = [(own.get(key, 0), kind is SIDECAR) for own, kind in init]
        starts = [sum(own for own, stays in lasting[:i] if stays) + lasting[i][0] for i in range(len(lasting))]
        end = sum(own for own, stays in lasting if stays) + sum(own.get(key, 0) for own in apps)
        found = peak_amounts([*init, *((own, APP) for own in apps)])
        assert found.get(key, 0) == max([end, *starts])
