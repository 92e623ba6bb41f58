"""Whatever becomes of cards, a kubelet fails no pod on a card that is well, nor has more to give than the cards."""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from config.protocol import names
from config.protocol.inventory import Card, Health, Inventory
from deviceplugin.allocation.identify import NodeState
from deviceplugin.allocation.pods import NodePod, PodContainer
from deviceplugin.kubelet.session import FakeDevices
from deviceplugin.node.devices import LEAVES_AFTER_S, NodeDevices
from scheduler.process.clock import Clock
from tests.support.node.kubelet_model import Kubelet
from tests.support.node.node_pods import node_pod, on

UNITS: Final = (4, 4, 8)
MOST_UNITS: Final = 10
# How often each happens, by the name of the method.
HAPPENINGS: Final = {
    "bind": 8,
    "admit": 8,
    "start": 6,
    "crash": 3,
    "delete": 3,
    "end": 3,
    "resize": 3,
    "to_mig": 1,
    "turn": 2,
    "lose": 1,
    "come_back": 1,
    "use_outside": 1,
    "look": 6,
    "restart_kubelet": 3,
    "restart_plugin": 1,
}
HAPPENING: Final = st.sampled_from([name for name, often in HAPPENINGS.items() for _ in range(often)])
HISTORIES: Final = st.lists(st.tuples(HAPPENING, st.integers(0, 999)), min_size=20, max_size=60)
STYLES: Final = st.booleans()


def card(index: int) -> Card:
    return Card(index=index, uuid=f"GPU-{index}", model="M", memory_mib=0, units=UNITS[index])


@dataclass
class View:
    """What the plugin looks at. meanwhile: happens after the kubelet's records were read, before they are used."""

    kubelet: Kubelet
    api: dict[str, NodePod]
    resources: Any = field(default_factory=lambda: SimpleNamespace(gpu_mem=names.GPU_MEM))
    pods: Any = field(default_factory=lambda: SimpleNamespace(complete=True))
    meanwhile: Any = None

    async def snapshot(self) -> NodeState:
        entries, pods = self.kubelet.checkpoint, tuple(self.api.values())
        if self.meanwhile:
            self.meanwhile()
        return NodeState(names.GPU_MEM, pods, entries)


class OneNode:
    """Bound pods fit the cards; the plugin's watch is as late as `look` is."""

    def __init__(self, *, old_style: bool) -> None:
        self.kubelet = Kubelet(healthy=())
        self.api: dict[str, NodePod] = {}
        self.where: dict[str, Card] = {}
        self.cards = {index: card(index) for index in range(len(UNITS))}
        self.outside = 0
        self.number = 0
        self.old_style = old_style
        self.view = View(self.kubelet, self.api)
        self.shown = FakeDevices()
        self.now_s = 0.0
        self.unhealthy_since: dict[str, float] = {}
        self.devices = self.made_devices()
        self.look(Random(0))  # noqa: S311  (nothing secret)

    def made_devices(self) -> NodeDevices:
        clock, old_style = Clock(lambda: self.now_s), self.old_style
        return NodeDevices(view=self.view, shown=self.shown, old_style=old_style, clock=clock)  # type: ignore[arg-type]

    def look(self, _: Random) -> None:
        """The plugin lists the devices, and the kubelet takes note."""
        whole = tuple(self.cards.values())
        found = tuple(replace(one, units=max(0, one.units - self.outside)) for one in whole)
        before = {name for name, _ in self.shown.now}
        self.now_s += 4.0
        all_there = asyncio.run(self.devices.show(Inventory(1, "580", whole), Inventory(1, "580", found)))
        self.kubelet.healthy = tuple(name for name, healthy in self.shown.now if healthy)
        gone = before - {name for name, _ in self.shown.now}
        assert all(self.now_s - self.unhealthy_since.get(name, self.now_s) >= LEAVES_AFTER_S for name in gone)
        unhealthy = {name for name, healthy in self.shown.now if not healthy}
        self.unhealthy_since = {name: self.unhealthy_since.get(name, self.now_s) for name in unhealthy}
        assert all_there or unhealthy

    def bind(self, chance: Random) -> None:
        """As the scheduler does: to a card that is well and has room."""
        units = chance.choice((1, 1, 2, 3))
        roomy = [one for one in self.cards.values() if self.room(one) >= units]
        if roomy:
            chosen, uid = chance.choice(roomy), f"u{self.number:03}"
            self.number += 1
            self.api[uid] = on(node_pod(f"p{uid}", [units], uid=uid), chosen)
            self.where[uid] = chosen

    def room(self, one: Card) -> int:
        if one.health is Health.UNHEALTHY:
            return 0
        used = sum(self.units(uid) for uid, chosen in self.where.items() if chosen.uuid == one.uuid and uid in self.api)
        return one.units - self.outside - used

    def units(self, uid: str) -> int:
        return sum(container.units for container in self.api[uid].asking())

    def admit(self, _: Random) -> None:
        waiting = [pod for uid, pod in sorted(self.api.items()) if uid not in self.kubelet.known]
        if waiting:
            self.kubelet.admit(waiting[0], answer, doubled=False)
            if waiting[0].uid in self.kubelet.finished:
                # It had no devices left, and the pod is gone.
                self.forget(waiting[0].uid)

    def start(self, chance: Random) -> None:
        admitted = sorted(self.kubelet.admitted)
        if admitted:
            self.kubelet.running.add(chance.choice(admitted))

    def crash(self, chance: Random) -> None:
        """A container of it does not run any more, or has done its work."""
        if self.kubelet.running:
            self.kubelet.running.discard(chance.choice(sorted(self.kubelet.running)))

    def delete(self, chance: Random) -> None:
        if self.api:
            uid = chance.choice(sorted(self.api))
            self.api[uid] = replace(self.api[uid], terminating=True)

    def end(self, _: Random) -> None:
        for uid in [uid for uid, pod in self.api.items() if pod.terminating]:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        self.kubelet.end(uid)
        del self.api[uid]

    def resize(self, chance: Random) -> None:
        """Another driver, or another memory unit."""
        self.changed(chance, units=chance.randint(0, MOST_UNITS))

    def to_mig(self, chance: Random) -> None:
        self.changed(chance, units=0, reason="mig")

    def turn(self, chance: Random) -> None:
        self.changed(chance, health=chance.choice((Health.HEALTHY, Health.UNHEALTHY)))

    def changed(self, chance: Random, **fields: Any) -> None:  # noqa: ANN401 - fields of Card
        if self.cards:
            index = chance.choice(sorted(self.cards))
            self.cards[index] = replace(self.cards[index], **fields)

    def lose(self, chance: Random) -> None:
        """It is not there any more after a restart of the machine."""
        if len(self.cards) > 1:
            del self.cards[chance.choice(sorted(self.cards))]

    def come_back(self, chance: Random) -> None:
        missing = sorted(set(range(len(UNITS))) - set(self.cards))
        if missing:
            index = chance.choice(missing)
            self.cards[index] = card(index)

    def use_outside(self, chance: Random) -> None:
        self.outside = chance.choice((0, 1, 2))

    def restart_plugin(self, chance: Random) -> None:
        """It may have lost its own records; its kubelet has not."""
        if chance.random() < 0.5:
            self.shown = FakeDevices()
        self.devices = self.made_devices()
        self.look(chance)

    def restart_kubelet(self, chance: Random) -> None:
        """Pods that the watch had shown by then are admitted again; while the plugin looks, one more comes in."""
        self.view.meanwhile = lambda: self.admit(chance)
        self.look(chance)
        self.view.meanwhile = None
        self.look(chance)
        self.kubelet.restart(record_lost=False)
        self.kubelet.register()
        for pod in [pod for _, pod in sorted(self.api.items()) if (pod.uid, "c0") in self.kubelet.assigned]:
            self.kubelet.admit(pod, answer, doubled=False)
            if pod.uid in self.kubelet.finished:
                assert not self.well(pod.uid), f"{pod} failed on {self.where[pod.uid]}"
                self.forget(pod.uid)

    def well(self, uid: str) -> bool:
        now = self.cards.get(self.where[uid].index)
        return now is not None and now.health is not Health.UNHEALTHY

    def check(self) -> None:
        """Right after a look: what the kubelet has free is what is left of the cards that are well.

        Records of the dead, which the kubelet's file keeps for a while, hide some of it.
        """
        recorded = {entry.pod_uid for entry in self.kubelet.checkpoint} | {uid for uid, _ in self.kubelet.assigned}
        if recorded <= self.api.keys() & self.kubelet.known.keys():
            taken = frozenset[str]().union(*self.kubelet.assigned.values())
            usable = sum(max(0, c.units - self.outside) for c in self.cards.values() if c.health is Health.HEALTHY)
            on_well = sum(len(ids) for (uid, _), ids in self.kubelet.assigned.items() if self.well(uid))
            assert len(set(self.kubelet.healthy) - taken) == max(0, usable - on_well)


def answer(_: NodePod, __: PodContainer, ___: int) -> bytes:
    return b""


@settings(max_examples=200, deadline=None)
@given(history=HISTORIES, old_style=STYLES)
def test_no_pod_on_a_card_that_is_well_fails_and_none_gets_what_is_not_there(
    history: list[tuple[str, int]], *, old_style: bool
) -> None:
    node = OneNode(old_style=old_style)
    for happening, seed in history:
        getattr(node, happening)(Random(seed))  # noqa: S311  (nothing secret)
        if happening == "look":
            node.check()
