"""A replica that stands by for months keeps nothing of what came and went."""

import asyncio

from tests.support.volumes import ZONE, claim, volume, with_claims
from tests.system.looking import A_SECOND_S, comes, node_of
from tests.system.process import in_virtual_time
from tests.system.replicas.test_two_replicas import replicas
from tests.system.volume_controller import zones


@in_virtual_time
async def test_what_opens_for_pods_that_wait_is_not_kept_by_who_tries_none() -> None:
    of, controller = zones(a="z1")
    async with replicas(of, "one", "two") as (one, two):
        for number in range(5):
            controller.comes(claim(f"data-{number}"), volume(f"pv-{number}", on=("z1",), key=ZONE))
            controller.bind(f"data-{number}", f"pv-{number}")
            comes(of, f"p{number}", 1, **with_claims(f"data-{number}"))
            await asyncio.sleep(A_SECOND_S)
            assert node_of(of, f"p{number}") == "a"
            of.pods.remove("default", f"p{number}")
            await asyncio.sleep(A_SECOND_S)

            assert (one.service.leads(), two.service.leads()) == (True, False)
            assert not one.service.engine.tables.cluster_events
            assert not two.service.engine.tables.cluster_events
