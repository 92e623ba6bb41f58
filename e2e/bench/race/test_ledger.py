"""The judge of a race finds what it has to find."""

import json

import pytest

from config.protocol import names
from e2e.bench import workload
from e2e.bench.race import ledger
from e2e.bench.race.ledger import Audit, Json
from e2e.bench.workload import UNITS_PER_CARD, Size
from e2e.node.announced import card_units

NODE = next(workload.nodes(Size(1, 1, 1)))
NODE_NAME = NODE["metadata"]["name"]
UUIDS = list(card_units(NODE))
ASKED = workload.template(0).gpu_mem


def placed(*, card: int = 0, units: int = ASKED, uuid: str | None = None) -> Json:
    """A pod of the workload, bound to the node and booked on one card."""
    pod = workload.pod(0, workload.template(0))
    pod["spec"]["nodeName"] = NODE_NAME
    pod["status"] = {"phase": "Pending"}
    pod["metadata"]["annotations"] = dict.fromkeys(names.ALLOCATION_KEYS, "") | {
        names.ALLOCATION: json.dumps({"0": {str(card): units}}),
        names.CARDS: json.dumps({str(card): uuid or UUIDS[card]}),
    }
    return pod


def without(key: str) -> Json:
    pod = placed()
    del pod["metadata"]["annotations"][key]
    return pod


def finished() -> Json:
    return placed() | {"status": {"phase": "Succeeded"}}


@pytest.mark.parametrize(
    ("pods", "verdict"),
    [
        pytest.param([placed(), placed(card=1)], Audit(2, 0, 0, 0, 0), id="all is well"),
        pytest.param([placed()] * (UNITS_PER_CARD // ASKED), Audit(9, 0, 0, 0, 0), id="a full card"),
        pytest.param([placed()] * (UNITS_PER_CARD // ASKED + 1), Audit(10, 0, 0, 1, 0), id="one pod too many"),
        pytest.param([without(names.MEM_IDX)], Audit(1, 1, 0, 0, 0), id="an allocation key is missing"),
        pytest.param([placed(units=1)], Audit(1, 0, 1, 0, 0), id="less booked than asked"),
        pytest.param([placed(uuid="GPU-of-another-node")], Audit(1, 0, 1, 1, 0), id="a card that the node lacks"),
        pytest.param([finished()], Audit(0, 0, 0, 0, 0), id="a finished pod holds nothing"),
    ],
)
def test_the_verdict_names_what_is_wrong(pods: list[Json], verdict: Audit) -> None:
    assert ledger.judged([NODE], pods) == verdict


def test_a_node_is_over_committed_whatever_the_annotations_say() -> None:
    bare = [without(names.CARDS) for _ in range(8 * UNITS_PER_CARD // ASKED + 1)]
    assert ledger.judged([NODE], bare).overcommitted_nodes == 1
