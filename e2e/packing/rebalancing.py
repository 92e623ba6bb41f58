"""How often a few moves make room on a full cluster: docs/evidence/packing.md.

`python -m e2e.packing.rebalancing OPENB` runs it.

Each case fills the nodes of the trace to a share with pods of the trace in an order of its own, under the default
configuration. Then a pod of eight whole cards comes that fits nowhere, and a plan is asked for.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from msgspec.structs import replace

from config.clusterfile.arrivals import Arrival
from config.clusterfile.reading import node_manifests, read
from e2e.packing.convert import cluster_file
from e2e.packing.openb import UNITS, Pod, asked_by, nodes_of, orders_of, pods_of
from scheduler.core.build import build_engine, resource_names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.kube import objects
from scheduler.pods.pod import Pod as ScheduledPod
from scheduler.tools.cli.answering import loaded
from scheduler.tools.defragment.movable import Movable
from scheduler.tools.defragment.planning import room_for
from scheduler.tools.simulate.player import pods_coming

_CARDS: Final = 8
_MOST_MOVES: Final = 10
_MOST_IN_VAIN: Final = 500
_FULL: Final = 0.99
_OWNER: Final = objects.OwnerReference("uid-of-owner", "ReplicaSet", "trace", controller=True)


@dataclass(frozen=True, slots=True)
class Case:
    """booked: share of all units. moves: of the plan, None where there is none. took_s: to find it."""

    seed: int
    booked: float
    pods: int
    moves: int | None
    took_s: float


class _Cluster:
    """The trace's nodes, and pods that come and go."""

    def __init__(self, asked: argparse.Namespace, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - the same cases for the same seeds
        configuration = loaded(asked.config, {})
        self.engine, self._reader = build_engine(configuration)
        self.engine.budgets_listed()
        self._resources = resource_names(configuration)
        orders, nodes = orders_of(asked.openb, asked.workload), nodes_of(asked.openb)
        file = asked.out / "nodes.yaml"
        file.write_text(cluster_file(nodes, orders[seed % len(orders)].ranks), encoding="utf-8")
        for manifest in node_manifests(read(file), configuration.memory_unit_mib):
            self.engine.node_changed(msgspec.convert(manifest, objects.Node))
        self.units = UNITS * sum(node.cards for node in nodes)
        self.on: dict[str, ScheduledPod] = {}
        self.booked = 0
        self._came = 0

    def come(self, ask: Pod) -> bool:
        """One more pod; whether it has got a place. One that has none is gone."""
        pod = self.read(ask, f"p{self._came}")
        self._came += 1
        self.engine.pod_seen(pod, float(self._came))
        self.engine.pod_waiting(pod, 0.0)
        decision = self.engine.decide(0.0, 0)
        if decision is None or not isinstance(decision.outcome, Placement):
            self.engine.pod_gone(pod.key.uid)
            return False
        placed = decision.outcome
        self.engine.bound(placed)
        there = replace(pod, node_name=placed.node, annotations={**pod.annotations, **placed.annotations})
        self.engine.pod_assigned(there)
        self.on[pod.key.uid] = there
        self.booked += pod.template.gpu_units
        return True

    def go(self) -> None:
        """One of the pods ends, whichever."""
        uid = self.rng.choice(list(self.on))
        self.booked -= self.on.pop(uid).template.gpu_units
        self.engine.pod_gone(uid)

    def read(self, ask: Pod, name: str) -> ScheduledPod:
        """As the scheduler thinks of it."""
        (step,) = pods_coming([Arrival(name, 0.0, None, ask.ask)], self._resources, "gpushare-scheduler")
        meta = replace(step.pod.metadata, uid=f"uid-{name}", owner_references=(_OWNER,))
        return self._reader.read(replace(step.pod, metadata=meta))

    @property
    def share(self) -> float:
        return self.booked / self.units


def case(asked: argparse.Namespace, seed: int) -> Case:
    """Fill, ask, plan."""
    cluster, pods = _Cluster(asked, seed), pods_of(asked.openb, asked.workload)
    large = next(ask for ask, _ in asked_by(pods) if ask.cards == _CARDS and ask.units_per_card == UNITS)
    asks = Pod("asks", large, None, None)
    _fill(cluster, _coming(pods, cluster.rng), _FULL if asked.departures else asked.share)
    while cluster.share > asked.share and asked.departures:
        cluster.go()
    # Where there is room for such a pod still, others like it come first.
    while fits(cluster.engine, asking := cluster.read(asks, "asks")):
        cluster.come(asks)
    began_s = time.perf_counter()
    owners = dict.fromkeys(cluster.on, _OWNER)
    found = room_for(cluster.engine, Movable(cluster.engine, owners, asking.priority), asking, _MOST_MOVES)
    took_s = time.perf_counter() - began_s
    return Case(seed, cluster.share, len(cluster.on), None if found is None else len(found.moves), took_s)


def _coming(pods: Sequence[Pod], rng: random.Random) -> Iterator[Pod]:
    """All pods of the list in random order, again and again."""
    while True:
        yield from rng.sample(pods, len(pods))


def _fill(cluster: _Cluster, coming: Iterator[Pod], share: float) -> None:
    """Until the share is booked, or many have come in turn that found no place."""
    in_vain = 0
    while cluster.share < share and in_vain < _MOST_IN_VAIN:
        in_vain = 0 if cluster.come(next(coming)) else in_vain + 1


def fits(engine: Engine, pod: ScheduledPod) -> bool:
    """Whether the pod fits as the cluster is."""
    with engine.queries.placing() as placing:
        return placing.fits(pod)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of the command line; what came of them on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("openb", type=Path, help="the folder with the trace")
    parser.add_argument("--out", type=Path, default=Path("build/packing"), help="default: build/packing")
    parser.add_argument("--workload", default="default", help="default: default")
    parser.add_argument("--cases", type=int, default=50, help="how many seeds, from 1 on")
    parser.add_argument("--share", type=float, default=0.9, help="of the cluster's units, that is booked")
    parser.add_argument("--departures", action="store_true", help="fill to 99 percent, then pods end at random")
    parser.add_argument("--config", type=Path, help="SchedulerConfiguration; default: the default one")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in range(1, asked.cases + 1):
        found.append(case(asked, seed))
        sys.stdout.write(json.dumps(asdict(found[-1])) + "\n")
        sys.stdout.flush()
    moves = [one.moves for one in found if one.moves is not None]
    sys.stdout.write(
        f"{len(moves)} of {len(found)} fit after at most {_MOST_MOVES} moves; moves: median "
        f"{median(moves) if moves else '-'}, most {max(moves, default=0)}; planning: median "
        f"{median(one.took_s for one in found):.2f} s, most {max(one.took_s for one in found):.2f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
