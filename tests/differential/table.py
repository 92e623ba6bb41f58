"""Which groups there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from tests.differential.groups import affinity, everything, nodes, preemption, resources, spread, volumes
from tests.differential.manifests import Scenario

Make: TypeAlias = Callable[[Random, str], Scenario]


@dataclass(frozen=True, slots=True)
class Group:
    """make: a source of chance and a name -> a scenario. count: how many scenarios."""

    make: Make
    count: int = 25


GROUPS: Final[Mapping[str, Group]] = {
    "taints": Group(nodes.taints),
    "unschedulable": Group(nodes.unschedulable, 12),
    "node_affinity": Group(nodes.node_affinity, 30),
    "node_fields": Group(nodes.node_fields, 12),
    "node_name": Group(nodes.node_name, 12),
    "node_ports": Group(nodes.node_ports),
    "resources": Group(resources.resources, 40),
    "several_resources": Group(resources.several_resources, 15),
    "resized": Group(resources.resized, 15),
    "balance": Group(resources.balance, 25),
    "shared_gpu_nodes": Group(resources.shared_gpu_nodes, 8),
    "existing_anti_affinity": Group(affinity.existing_anti_affinity, 30),
    "required_affinity": Group(affinity.required_affinity, 30),
    "required_anti_affinity": Group(affinity.required_anti_affinity, 25),
    "affinity_label_keys": Group(affinity.label_keys, 20),
    "preferred_affinity": Group(affinity.preferred_affinity, 25),
    "spread_hard": Group(spread.spread_hard, 30),
    "spread_policies": Group(spread.spread_policies, 15),
    "spread_domains": Group(spread.spread_domains, 20),
    "spread_label_keys": Group(spread.spread_label_keys, 20),
    "spread_soft": Group(spread.spread_soft, 25),
    "spread_by_default": Group(spread.spread_by_default, 20),
    "volume_bound": Group(volumes.volume_bound, 20),
    "volume_static": Group(volumes.volume_static, 25),
    "volume_dynamic": Group(volumes.volume_dynamic, 25),
    "volume_ephemeral": Group(volumes.volume_ephemeral, 10),
    "volume_zone": Group(volumes.volume_zone, 20),
    "volume_restrictions": Group(volumes.volume_restrictions, 20),
    "volume_limits": Group(volumes.volume_limits, 20),
    "images": Group(nodes.images),
    "declared_features": Group(nodes.declared_features, 15),
    "preemption": Group(preemption.preemption),
    "preemption_rules": Group(preemption.preemption_rules, 40),
    "preemption_wide": Group(preemption.preemption_wide, 6),
    "preemption_lowest": Group(preemption.preemption_lowest, 45),
    "preemption_again": Group(preemption.preemption_again, 10),
    "nominated": Group(preemption.nominated, 15),
    "plain": Group(everything.plain, 40),
    "everything": Group(everything.everything, 40),
}


def scenarios(name: str) -> list[Scenario]:
    """Those of a group: always the same, whatever other groups there are."""
    group = GROUPS[name]
    return [
        group.make(Random(f"{name}/{number}"), f"{name}/{number}")  # noqa: S311 - repeatable
        for number in range(group.count)
    ]
