"""Which keys are a letter away from ours."""

import pytest

from config.protocol import names
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.mistakes import mistakes, node_mistakes
from tests.support.builders import wire_node, wire_pod

RESOURCES = ResourceNames()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gpushar/exclusive", "gpushare/exclusive"),
        ("gpushare/exclusiev", "gpushare/exclusive"),
        ("gpushare/Exclusive", "gpushare/exclusive"),
        ("gpushares/cards", "gpushare/cards"),
        ("aliyun.com/gpu-counts", "aliyun.com/gpu-count"),
        ("aliyum.com/gpu-count", "aliyun.com/gpu-count"),
        ("scheduler.framework.gpushare.alocation", "scheduler.framework.gpushare.allocation"),
        ("gpushare/card-policies", "gpushare/card-policy"),
    ],
)
def test_the_nearest_key_is_named(key: str, meant: str) -> None:
    (said,) = mistakes(wire_pod("p", 3, annotations={key: "x"}), RESOURCES)
    assert said == f"annotation {key} is unknown and has no effect: did you mean {meant}?"


@pytest.mark.parametrize("key", ["gpusharing/exclusive", "gpu", "my-gpu/count", "aliyun.com/count", "k" * 200 + "gpu"])
def test_a_key_further_away_is_somebody_elses(key: str) -> None:
    assert mistakes(wire_pod("p", 3, annotations={key: "x"}, labels={key: "x"}), RESOURCES) == ()


def test_a_key_of_ours_that_is_near_none_is_answered_by_those_there_are() -> None:
    (said,) = mistakes(wire_pod("p", 3, annotations={"gpushare/x": "x"}), RESOURCES)
    assert said.startswith("annotation gpushare/x is unknown and has no effect: known keys: ack.gpushare.placement, ")
    assert names.EXCLUSIVE in said


def test_every_key_that_is_read_is_known() -> None:
    written = dict.fromkeys(names.POD_ANNOTATIONS, "x")
    assert mistakes(wire_pod("p", 3, annotations=written, labels=dict.fromkeys(names.POD_LABELS, "1")), RESOURCES) == ()
    assert node_mistakes(wire_node("a", annotations=dict.fromkeys(names.NODE_ANNOTATIONS, "x"))) == ()


def test_another_name_of_a_resource_is_known_where_it_is_configured() -> None:
    own = ResourceNames(gpu_mem="example.com/gpu-mem", gpu_count="example.com/gpu-count")
    limits = {"name": "c", "resources": {"limits": {"example.com/gpu-mem": "3"}}}
    assert mistakes(wire_pod("p", containers=[limits], labels={"example.com/gpu-count": "1"}), own) == ()
