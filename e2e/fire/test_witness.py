"""The witness finds what is planted: one that cannot fail shows nothing."""

import json
import random
from collections.abc import Mapping
from itertools import count
from typing import Final

import pytest

from e2e.fire import pending, reading, workload
from e2e.fire.reading import Json, Unreadable
from e2e.fire.witness import Change, Witness

NODE: Final = "n"
CARD: Final = "GPU-n-0-0"


def pod(uid: str, units: int = 10, **annotations: str) -> Json:
    return {
        "metadata": {"name": uid, "namespace": "d", "uid": uid, "annotations": dict(annotations)},
        "spec": {
            "schedulerName": "gpushare-scheduler",
            "containers": [{"name": "c", "resources": {"limits": {reading.GPU_MEM: str(units)}}}],
        },
        "status": {},
    }


def bound(waiting: Json, card: int = 0, node: str = NODE, changed: Mapping[str, str | None] = {}) -> Json:
    """The pod as the scheduler binds it. changed: annotations that are otherwise, None for one that is missing."""
    units = reading.asked_on_each_card(waiting)
    written = {
        reading.ALLOCATION: json.dumps({"0": {str(card): units}}),
        reading.INIT_ALLOCATION: "{}",
        reading.CARDS: json.dumps({str(card): f"GPU-n-0-{card}"}),
        reading.UNIT_MIB: "1024",
        reading.MEM_IDX: str(card),
        reading.MEM_POD: str(units),
        reading.MEM_DEV: "16",
        reading.MEM_ASSIGNED: "false",
        reading.MEM_ASSUME_TIME: "1",
    }
    kept = {key: value for key, value in {**written, **changed}.items() if value is not None}
    metadata = waiting["metadata"] | {"annotations": waiting["metadata"]["annotations"] | kept}
    return waiting | {"metadata": metadata, "spec": waiting["spec"] | {"nodeName": node}}


class Told:
    """A witness that is told of one change after the other."""

    def __init__(self) -> None:
        self.witness = Witness()
        self._revisions = count(1)
        self.node(workload.node(NODE))

    def node(self, node: Json, *, gone: bool = False) -> None:
        self.witness.take(Change(next(self._revisions), "node", gone, node))

    def pods(self, *pods: Json, gone: bool = False) -> str:
        for each in pods:
            self.witness.take(Change(next(self._revisions), "pod", gone, each))
        return " | ".join(fault.text for fault in self.witness.faults)


@pytest.fixture
def told() -> Told:
    return Told()


def test_pods_that_fit_are_well(told: Told) -> None:
    assert told.pods(pod("u"), bound(pod("u")), bound(pod("v", 6)), bound(pod("w"), 1)) == ""
    assert told.witness.free() == {NODE: {CARD: 0, "GPU-n-0-1": 6, "GPU-n-0-2": 16, "GPU-n-0-3": 16}}


def test_a_card_that_is_given_twice_is_found_with_what_happened_to_its_pods(told: Told) -> None:
    assert told.pods(bound(pod("u")), bound(pod("v"))) == f"card {CARD} of n holds 20 units of 16"
    assert [f"d/{uid} {uid}" in told.witness.report() for uid in "uv"] == [True, True]


def test_a_card_that_was_given_back_is_free(told: Told) -> None:
    ended = bound(pod("u")) | {"status": {"phase": "Succeeded"}}
    assert told.pods(bound(pod("u")), ended, bound(pod("v"))) == ""
    told.pods(bound(pod("v")), gone=True)
    assert told.pods(bound(pod("w"))) == ""


def test_a_pod_that_terminates_still_holds_its_card(told: Told) -> None:
    leaving = bound(pod("u"))
    leaving["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    assert "holds 20 units of 16" in told.pods(bound(pod("u")), leaving, bound(pod("v")))


def test_cards_of_a_node_that_came_back_are_still_held(told: Told) -> None:
    told.pods(bound(pod("u")))
    told.node(workload.node(NODE), gone=True)
    told.node(workload.node(NODE))
    assert "holds 20 units of 16" in told.pods(bound(pod("v")))


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(bound(pod("u"), node="m"), id="to another node"),
        pytest.param(bound(pod("u"), 1), id="to another card"),
        pytest.param(bound(pod("u"), changed={reading.ALLOCATION: '{"0":{"0":9}}'}), id="to other units"),
        pytest.param(bound(pod("u"), changed={reading.MEM_ASSUME_TIME: "2"}), id="bound again"),
        pytest.param(pod("u"), id="to no node"),
    ],
)
def test_a_pod_that_is_moved_is_found(told: Told, after: Json) -> None:
    assert "d/u was moved from n" in told.pods(bound(pod("u")), after)


@pytest.mark.parametrize("key", reading.WRITTEN)
def test_a_missing_annotation_is_found(told: Told, key: str) -> None:
    assert told.pods(bound(pod("u"), changed={key: None})) == f"d/u is on n: annotations are missing: {key}"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            {reading.ALLOCATION: '{"0":{"0":9}}'}, "asks 10 units of 1 cards and was given {'0': 9}", id="less"
        ),
        pytest.param({reading.ALLOCATION: "{}"}, "was given {}", id="nothing"),
        pytest.param({reading.ALLOCATION: '{"1":{"0":10}}'}, "names containers that the pod lacks", id="another's"),
        pytest.param({reading.ALLOCATION: "broken"}, "not readable", id="not JSON"),
        pytest.param({reading.CARDS: '{"0":"GPU-n-0-0","1":"GPU-n-0-1"}'}, "is on cards 0, 1, asks for 1", id="cards"),
        pytest.param({reading.CARDS: '{"0":"GPU-of-nobody"}'}, "has never announced: ['GPU-of-nobody']", id="unknown"),
        pytest.param({reading.UNIT_MIB: "512"}, "counts in 512 MiB", id="unit"),
        pytest.param({reading.MEM_IDX: "1"}, "are 1, 10, not 0, 10", id="legacy index"),
    ],
)
def test_an_allocation_that_is_not_what_the_pod_asks_is_found(
    told: Told, changed: Mapping[str, str], said: str
) -> None:
    assert said in told.pods(bound(pod("u"), changed=changed))


def test_a_mark_of_the_device_plugin_moves_no_pod_and_another_text_does(told: Told) -> None:
    assert told.pods(bound(pod("u")), bound(pod("u"), changed={reading.MEM_ASSIGNED: "true"})) == ""
    assert "was moved" in told.pods(bound(pod("u"), changed={reading.MEM_ASSIGNED: "x"}))


def test_an_allocation_before_the_node_is_found(told: Told) -> None:
    early = bound(pod("u"))
    del early["spec"]["nodeName"]
    assert told.pods(early) == "d/u has an allocation and no node"


def test_a_uid_that_comes_back_is_found(told: Told) -> None:
    told.pods(pod("u"))
    told.pods(pod("u"), gone=True)
    assert told.pods(pod("u")) == "d/u was gone and is there again"


def test_company_on_a_card_of_ones_own_is_found(told: Told) -> None:
    assert told.pods(bound(pod("u", 2, **{reading.EXCLUSIVE: "true"})), bound(pod("v", 2))) == (
        f"card {CARD} of n is one pod's own and holds 2"
    )


def test_a_card_of_another_size_is_a_mistake_of_the_test(told: Told) -> None:
    told.node(json.loads(json.dumps(workload.node(NODE)).replace(r"\"units\": 16", r"\"units\": 8")))
    assert told.pods().startswith(f"mistake of the test: card {CARD} of n")


def test_sidecars_and_init_containers_count_by_kubernetes_rule() -> None:
    asked = pod("u", 4)
    side, init = ({"name": name, "resources": {"limits": {reading.GPU_MEM: "3"}}} for name in ("side", "init"))
    asked["spec"]["initContainers"] = [side | {"restartPolicy": "Always"}, init | {"name": "init"}]
    assert reading.asked_on_each_card(asked) == 7  # the sidecar and the app; while the init container runs, 6
    with pytest.raises(Unreadable, match=r"container c asks 4 units of 1 cards and was given .'0': 7"):
        reading.share(bound(asked))


@pytest.mark.parametrize("seed", range(8))
def test_pods_of_the_workload_ask_for_at_most_a_card(seed: int) -> None:
    assert 1 <= reading.asked_on_each_card(workload.pod("p", random.Random(seed))) <= workload.UNITS  # noqa: S311 - to be repeated


INSUFFICIENT: Final = "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 10, most free 6 (of 16)."


def says(waiting: Json, message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return waiting | {"status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        pytest.param(INSUFFICIENT, "", id="true"),
        pytest.param(
            f"{INSUFFICIENT} preemption: 0/1 nodes are available: 1 No preemption victims.", "", id="and more"
        ),
        pytest.param("", "says no reason", id="none"),
        pytest.param("binding to n was rejected: no", "says no reason", id="another reason"),
        pytest.param(INSUFFICIENT.replace("wants 10", "wants 9"), "asks 10", id="other units"),
        pytest.param(INSUFFICIENT.replace("free 6", "free 12"), "asks 10", id="free enough"),
        pytest.param(INSUFFICIENT.replace("0/1", "0/9"), "counts 9 nodes", id="other nodes"),
        pytest.param(INSUFFICIENT.replace(": 1 I", ": 2 I"), "counts 1 nodes", id="does not add up"),
    ],
)
def test_a_pod_that_waits_has_to_say_why(told: Told, message: str, found: str) -> None:
    told.pods(*(bound(pod(f"u{card}"), card) for card in range(workload.CARDS)), says(pod("v"), message))
    wrong = " | ".join(pending.untrue(told.witness))
    assert found in wrong
    assert bool(found) is bool(wrong)


def test_a_pod_that_waits_although_it_fits_is_found(told: Told) -> None:
    told.pods(says(pod("v"), INSUFFICIENT))
    assert pending.untrue(told.witness)[0].startswith("v waits, and 10 units are free on n")


def test_a_pod_that_is_being_deleted_need_not_say_why(told: Told) -> None:
    leaving = says(pod("v"), "")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-23T03:30:28Z"
    told.pods(leaving)
    assert pending.untrue(told.witness) == []
