"""What a pod asks of GPU cards: every written form, and the words for a wrong one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import names
from scheduler.pods.gpu_request import (
    GpuRequest,
    GpuRequestError,
    PlacementPolicy,
    ResourceNames,
    Selection,
    gpu_request_of,
    gpu_units,
    sidecars,
)
from tests.support.builders import wire_pod

RESOURCES = ResourceNames()
SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": {"limits": {names.GPU_MEM: "2"}}}


def ask(gpu_mem: int | list[int] = 4, **options: object) -> GpuRequest:
    """The demand of a pod that asks GPU memory."""
    request = gpu_request_of(wire_pod("p", gpu_mem, **options), RESOURCES)
    assert request is not None
    return request


def annotated(gpu_mem: int | list[int] = 4, **annotations: str) -> GpuRequest:
    """As `ask`, with annotations of the prefix `gpushare/`; `_` for `-`."""
    written = {f"gpushare/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return ask(gpu_mem, annotations=written)


def test_a_pod_without_gpu_memory_asks_nothing_whatever_its_annotations_say() -> None:
    assert (
        gpu_request_of(wire_pod("p", annotations={names.CARD_POLICY: "tight", names.GPU_COUNT: "x"}), RESOURCES) is None
    )


def test_one_card_by_default() -> None:
    assert ask([3, 1, 0]) == GpuRequest(cards=1, units_per_card=4, containers=(3, 1, 0), init_containers=())


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_gpu_count_is_a_label_or_an_annotation(where: str) -> None:
    request = ask([4, 2], init_gpu_mem=[8], **{where: {names.GPU_COUNT: "2"}})
    assert request == GpuRequest(cards=2, units_per_card=4, containers=(2, 1), init_containers=(4,))
    assert request.units == 8


def test_the_annotation_wins_over_the_label() -> None:
    assert ask(4, labels={names.GPU_COUNT: "2"}, annotations={names.GPU_COUNT: "4"}).cards == 4


def test_a_request_without_a_limit_counts() -> None:
    container = {"name": "c", "resources": {"requests": {names.GPU_MEM: "3"}}}
    assert gpu_units(wire_pod("p", containers=[container]), names.GPU_MEM) == 3


def test_a_sidecar_counts_beside_the_containers_and_is_told_apart() -> None:
    wire = wire_pod("p", 3, initContainers=[SIDECAR, {**SIDECAR, "name": "i", "restartPolicy": ""}])
    assert gpu_units(wire, names.GPU_MEM) == 5
    assert sidecars(wire) == (True, False)


@pytest.mark.parametrize(
    ("options", "exclusive"),
    [
        pytest.param({}, False, id="not asked"),
        pytest.param({"annotations": {names.EXCLUSIVE: "true"}}, True, id="annotation"),
        pytest.param({"annotations": {names.EXCLUSIVE: "false"}}, False, id="annotation says no"),
        pytest.param({"labels": {names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}}, True, id="label"),
        pytest.param({"labels": {names.PLACEMENT_LABEL: "other"}}, False, id="another placement"),
        pytest.param({"annotations": {names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}}, False, id="no label"),
    ],
)
def test_whole_cards(options: dict[str, object], exclusive: bool) -> None:  # noqa: FBT001 - a case of the table
    assert ask(4, **options).exclusive is exclusive


@pytest.mark.parametrize(
    "key",
    [
        *(names.EXCLUSIVE, names.CARD_MODELS, names.CARD_UUIDS, names.CARD_POLICY, names.NODE_POLICY),
        *(names.ISOLATION, names.COMPUTE_MODE, names.GPU_MEM_LIMIT),
    ],
)
def test_what_is_an_annotation_is_not_read_as_a_label(key: str) -> None:
    assert ask(4, labels={key: "spread"}) == ask(4)


def test_required_isolation_is_read() -> None:
    assert annotated(isolation="required").isolated
    assert not ask().isolated


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        pytest.param({"gpu_mem": [3, 2]}, None, id="no limit"),
        pytest.param({"gpu_mem": [3, 2], "annotations": {names.GPU_MEM_LIMIT: "8"}}, 16, id="each container"),
        pytest.param({"gpu_mem": [3, 2], "annotations": {names.GPU_MEM_LIMIT: "c0=8"}}, 10, id="one container"),
        pytest.param(
            {"gpu_mem": [3, 0], "init_gpu_mem": [9], "annotations": {names.GPU_MEM_LIMIT: "c0=4"}},
            9,
            id="the init container's request is more",
        ),
    ],
)
def test_the_limit_adds_up_like_the_request_and_changes_nothing_else(
    options: dict[str, object], limit: int | None
) -> None:
    request = ask(**options)  # type: ignore[arg-type]
    assert request.limit_units == limit
    assert replace(request, limit_units=None) == ask(**{**options, "annotations": None})  # type: ignore[arg-type]


def test_policies_are_read() -> None:
    request = annotated(card_policy="spread", node_policy="binpack")
    assert (request.card_policy, request.node_policy) == (PlacementPolicy.SPREAD, PlacementPolicy.BINPACK)


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        pytest.param("", Selection(), id="nothing"),
        pytest.param("A100, H100,", Selection(frozenset({"A100", "H100"})), id="wanted"),
        pytest.param("!T4,! P4", Selection(excluded=frozenset({"T4", "P4"})), id="excluded"),
        pytest.param("A100,!T4", Selection(frozenset({"A100"}), frozenset({"T4"})), id="both"),
    ],
)
def test_models_and_uuids_are_comma_lists(text: str, selection: Selection) -> None:
    request = annotated(card_models=text, card_uuids=text)
    assert request.models == request.uuids == selection


@pytest.mark.parametrize(
    ("selection", "accepted"),
    [
        pytest.param(Selection(), {"a", "b", "c"}, id="anything"),
        pytest.param(Selection(frozenset({"a", "b"})), {"a", "b"}, id="wanted"),
        pytest.param(Selection(excluded=frozenset({"a"})), {"b", "c"}, id="excluded"),
        pytest.param(Selection(frozenset({"a", "b"}), frozenset({"a"})), {"b"}, id="excluded wins"),
    ],
)
def test_a_selection_accepts(selection: Selection, accepted: set[str]) -> None:
    assert {name for name in "abc" if selection.accepts(name)} == accepted
    assert bool(selection) is (accepted != {"a", "b", "c"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"gpu_mem": 2**31},
            "requests 2147483648, which is 2147483648 units: units are GiB here; write 2",
            id="absurd",
        ),
        pytest.param(
            {"gpu_mem": [4, 3], "labels": {names.GPU_COUNT: "2"}},
            "container c1 requests 3, which is not divisible by aliyun.com/gpu-count 2; expected a multiple of 2",
            id="is not divisible",
        ),
        pytest.param({"labels": {names.GPU_COUNT: "0"}}, "'0' is not a number of cards; expected 1 to 256", id="0"),
        pytest.param({"labels": {names.GPU_COUNT: "257"}}, "'257' is not a number of cards", id="257"),
        pytest.param({"labels": {names.GPU_COUNT: "-1"}}, "'-1' is not a number of cards", id="negative"),
        pytest.param({"labels": {names.GPU_COUNT: "²"}}, "'²' is not a number of cards", id="a digit, not ASCII"),
        pytest.param({"labels": {names.GPU_COUNT: ""}}, "'' is not a number of cards", id="empty"),
        pytest.param(
            {"annotations": {names.EXCLUSIVE: "yes"}},
            "gpushare/exclusive: 'yes' is unknown; expected true or",
            id="yes",
        ),
        pytest.param(
            {"annotations": {names.ISOLATION: "preferred"}},
            "gpushare/isolation: 'preferred' is unknown; expected required",
            id="isolation",
        ),
        pytest.param(
            {"annotations": {names.COMPUTE_MODE: "sm-sharing"}},
            "gpushare/compute-mode: 'sm-sharing' is unknown; expected one of: mps, time-slicing",
            id="compute mode",
        ),
        pytest.param(
            {"annotations": {names.GPU_MEM_LIMIT: "3"}},
            "gpushare/gpu-mem-limit: container c0 requests 4 units, more than the limit of 3",
            id="limit",
        ),
        pytest.param(
            {"annotations": {names.NODE_POLICY: "tight"}},
            "gpushare/node-policy: 'tight' is unknown; expected one of: binpack, spread, fragmentation",
            id="policy",
        ),
    ],
)
def test_a_wrong_ask_says_which_key_and_what_was_expected(options: dict[str, object], words: str) -> None:
    wire = wire_pod("p", **{"gpu_mem": 4, **options})  # type: ignore[arg-type]
    with pytest.raises(GpuRequestError) as caught:
        gpu_request_of(wire, RESOURCES)
    assert words in str(caught.value)


def test_a_megabyte_of_annotation_is_not_repeated_to_the_user() -> None:
    with pytest.raises(GpuRequestError) as caught:
        annotated(card_policy="x" * 2**20)
    assert len(str(caught.value)) < 200


@given(cards=st.integers(1, 8), shares=st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_shares_on_all_cards_add_up_to_the_ask(cards: int, shares: list[int]) -> None:
    request = gpu_request_of(
        wire_pod("p", [cards * s for s in shares], labels={names.GPU_COUNT: str(cards)}), RESOURCES
    )
    assert (0 if request is None else request.units) == cards * sum(shares)
    assert request is None or request.containers == tuple(shares)
