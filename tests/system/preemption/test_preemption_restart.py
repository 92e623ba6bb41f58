"""Places that are kept when the scheduler is killed: the next process, on a cluster in memory."""

import asyncio

from tests.system.looking import A_SECOND_S, cluster, comes, node_of
from tests.system.preempting import is_going, nominated, runs
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling


@in_virtual_time
async def test_a_pod_that_was_tried_before_the_restart_is_decided_before_newcomers_of_its_priority() -> None:
    of = cluster(n1=[15, 15], n3=[15, 15])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 0)
    async with scheduling(of):
        for name in ("k1", "k2"):
            await runs(of, name, 15, to="n1", labels={"app": "db"})
        for name in ("m1", "m3"):
            await runs(of, name, 15, 500, to="n3")
        await runs(of, "up3", 15, 1000)
        assert (nominated(of, "up3"), [is_going(of, name) for name in ("m1", "m3")]) == ("n3", [True, False])

    # By name, and by uid, it comes before the pod for which the place is kept.
    comes(of, "rival", 15, priority=1000)
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)
        going = [name for name in ("k1", "k2", "m1", "m3") if is_going(of, name)]
        assert (nominated(of, "rival"), going) == ("n3", ["m1", "m3"])

        of.pods.remove("default", "m1")
        of.pods.remove("default", "m3")
        await asyncio.sleep(A_MOMENT_S)
        assert [node_of(of, name) for name in ("up3", "rival")] == ["n3", "n3"]
