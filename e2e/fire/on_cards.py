"""Which containers run on which cards, as their processes were started: what kubelets and plugins have made of it all.

    containers that run, on every node ──▶ OnCards ──▶ faults

Must never be:
- a container has other cards, or other units of them, than the annotations of its pod say;
- containers that run at the same moment have more units of a card than it has.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from e2e.fire import reading
from e2e.fire.reading import Json, Unreadable
from e2e.node.containers import RunningContainer

# docs/develop/protocol.md, environment variables.
_CARD_UUIDS: Final = "GPUSHARE_CARD_UUIDS"
_UNITS: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"


@dataclass(slots=True)
class OnCards:
    """size: units of each card. looked: how many containers were looked into, each once. faults: all so far."""

    size: int
    looked: set[tuple[str, str, int]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)

    def look(self, running: Iterable[RunningContainer], pods: Mapping[str, Json]) -> None:
        """Judge what runs at this moment. pods: by uid, as last seen, also those that are gone."""
        on_cards = [one for one in running if one.environment.get(_CARD_UUIDS)]
        for one in on_cards:
            if (key := (one.pod_uid, one.name, one.pid)) not in self.looked and one.pod_uid in pods:
                self.looked.add(key)
                self._compare(one, pods[one.pod_uid])
        # Whoever was found first still runs now: all of these have run at the moment in between.
        self._add_up([one for one in on_cards if one.still_runs()])

    def _compare(self, one: RunningContainer, pod: Json) -> None:
        name = f"{pod['metadata']['name']}/{one.name}"
        try:
            wanted = reading.given(pod, one.name)
        except (Unreadable, KeyError, ValueError) as why:
            self.faults.append(f"{name} runs on cards, and its pod has no allocation: {why!r}")
            return
        if (inside := _cards_of(one)) != wanted:
            self.faults.append(f"{name} has {inside}; its pod's annotations say {wanted}")

    def _add_up(self, running: Iterable[RunningContainer]) -> None:
        held: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for one in running:
            for uuid, units in _cards_of(one).items():
                held[uuid][f"{one.pod_uid}/{one.name}"] += units
        for uuid, holders in held.items():
            self.most[uuid] = max(self.most[uuid], holders.total())
            if holders.total() > self.size:
                self.faults.append(f"on card {uuid} of {self.size} units run {dict(holders)}")


def _cards_of(one: RunningContainer) -> dict[str, int]:
    """UUID -> units. Every card of a container gives it as much."""
    uuids = filter(None, one.environment.get(_CARD_UUIDS, "").split(","))
    return dict.fromkeys(uuids, int(one.environment.get(_UNITS, "0")))
