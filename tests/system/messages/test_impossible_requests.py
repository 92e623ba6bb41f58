"""Asks that can never be met wait with the exact reason, and their owner is warned once."""

import asyncio
from typing import Any

import pytest

from config.protocol import names
from tests.support.builders import wire_node
from tests.system.looking import HOSTNAME, NOT_HELPFUL, comes, condition, node_of, warnings
from tests.system.process import in_virtual_time, scheduling, world

MINUTES = 20
_UNKNOWN_OPERATOR = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "Resembles", "values": ["a"]}]}]
        }
    }
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"gpu_mem": 1000}, "1 Insufficient GPU memory on one card: wants 1000, most free 16 (of 16)", id="too much"
        ),
        pytest.param(
            {"gpu_mem": 2**40},
            "aliyun.com/gpu-mem: container c0 asks 1099511627776, which is 1099511627776 units: "
            "units are GiB here; write 1024",
            id="absurdly much",
        ),
        pytest.param(
            {"gpu_mem": 5, "annotations": {names.GPU_COUNT: "2"}},
            "aliyun.com/gpu-mem: container c0 asks 5, which does not divide by aliyun.com/gpu-count 2; "
            "expected a multiple of 2",
            id="does not divide",
        ),
        pytest.param(
            {"gpu_mem": 2, "annotations": {names.NODE_POLICY: "x" * 1000}},
            f"gpushare/node-policy: '{'x' * 64}' is unknown; expected one of: binpack, spread, fragmentation",
            id="unknown node policy, long",
        ),
        pytest.param(
            {"gpu_mem": 2, "annotations": {names.EXCLUSIVE: "maybe"}},
            "gpushare/exclusive: 'maybe' is unknown; expected true or false",
            id="neither exclusive nor not",
        ),
        pytest.param(
            {"gpu_mem": 2, "affinity": _UNKNOWN_OPERATOR},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="unknown operator of affinity",
        ),
        pytest.param(
            {"gpu_mem": 2, "tolerations": [{"key": "k", "operator": "Likes"}], "nodeSelector": {"tainted": "yes"}},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="unknown operator of a toleration",
        ),
    ],
)
@in_virtual_time
async def test_a_request_that_cannot_be_met_waits_with_a_reason_and_one_warning(
    options: dict[str, Any], message: str
) -> None:
    of = world()
    of.nodes.add(wire_node("a", [16, 16]))
    async with scheduling(of) as process:
        comes(of, "p", **options)
        for n in range(MINUTES):  # of a lively cluster
            comes(of, f"other-{n}", 16)
            of.nodes.patch("a", labels={"minute": str(n)})
            await asyncio.sleep(60)
            of.pods.remove("default", f"other-{n}")
        await asyncio.sleep(1)

        assert node_of(of, "p") == ""
        told = f"0/1 nodes are available: {message}.{NOT_HELPFUL}"
        assert condition(of, "p") == f"False {told}"
        assert warnings(of, "p") == [("FailedScheduling", told)]
        assert process.cycle.refused >= MINUTES // 5
        assert process.cycle.placed == MINUTES
