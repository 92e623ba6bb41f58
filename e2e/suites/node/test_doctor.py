"""`gpushare-device-plugin doctor` on a real node: what it says of one that is well, and of one that is not."""

import msgspec
import pytest

from deviceplugin.doctor.facts import Examination, Verdict
from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable
from e2e.node.node_pods import pod_seen
from e2e.programs.doctor_program import doctor
from e2e.support.shared_node import (
    GIB,
    STANDARD_MIB,
    SharedNode,
    all_settled,
    pods,
    shared_pod,
    sharing,
)

WITHOUT_THE_FIRST = sum(STANDARD_MIB[1:]) // GIB


async def test_of_a_node_that_is_well_nothing_is_to_be_done(shared: SharedNode, on_node: Admin) -> None:
    async with pods(on_node, [shared_pod("p", [sharing(2)])]) as created:
        await all_settled(on_node, created)
        code, said = await doctor(shared.plugin)
        print(said)  # noqa: T201 - docs/first-gpu-node.md shows it
        assert (code, "What to do:" in said) == (0, False), said


async def test_of_a_node_that_is_not_each_thing_is_said_with_what_to_do(shared: SharedNode, on_node: Admin) -> None:
    by_hand = shared_pod("by-hand", [sharing(1)], nodeName=shared.node.name)
    by_hand["spec"]["schedulerName"] = "default-scheduler"
    async with shared.instead(readingInterval="1s") as plugin:
        await plugin.ready()
        async with pods(on_node, [by_hand]):
            await plugin.happens(card=0, xid=119)
            await pod_seen(on_node, "by-hand", _known, within_s=30)
            await plugin.said("notice", reason="GPUUnhealthy", within_s=15)
            # The kubelet writes the node's status a little later, and until then it shows what the plugin before had.
            await shared.node_seen(on_node, lambda node: allocatable(node) == WITHOUT_THE_FIRST)
            code, said = await doctor(plugin)
            print(said)  # noqa: T201 - as above
            assert code == 1
            code, said = await doctor(plugin, "-o", "json")
            report = msgspec.json.decode(said, type=Examination)
        failed = {one.check: one for one in report.findings if one.verdict is Verdict.FAILED}
        assert (code, set(failed)) == (1, {"pods", "cards"}), said
        assert "default/by-hand (schedulerName default-scheduler)" in failed["pods"].found
        assert "GSP timeout" in failed["cards"].remedy


@pytest.mark.usefixtures("on_node")
async def test_of_a_node_whose_plugin_is_gone_it_says_what_it_can(shared: SharedNode) -> None:
    async with shared.instead() as plugin:
        await plugin.ready()
        plugin.stop()
        code, said = await doctor(plugin)
        print(said)  # noqa: T201 - as above
    assert code == 1
    assert "is the plugin running here?" in said


def _known(found: Json) -> bool:
    return bool(found["spec"].get("nodeName"))
