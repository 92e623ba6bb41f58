"""What the running service does, on a cluster in memory and in virtual time."""

import asyncio

from scheduler import objects
from tests.builders import wire_node, manifest
from tests.system.process import scheduling, world
from tests.virtual_time import run


def test_three_replicas_of_three_units_share_one_card() -> None:
    async def main() -> None:
        of = world()
        of.nodes.add(wire_node("a", [16, 16]))
        async with scheduling(of) as p:
            for n in range(3):
                of.pods.create(manifest(f"b-{n}", 3))
            await asyncio.sleep(1)
            print([(x.spec.node_name, x.metadata.annotations) for x in of.pods])
            print(list(of.events))
            assert p.engine.tables.cards.free[:, 0].tolist()[:2] == [7, 16]

    run(main())
