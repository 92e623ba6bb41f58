"""Steps of a history. A step whose object is missing does nothing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from config.protocol.allocation import Allocation, LegacyFields, encode
from scheduler.testing.rules.plans import UNIT_MIB, NodePlan, PodPlan, Setting, Texts, with_settings
from scheduler.testing.rules.world import TrialWorld

# The rest of a pod's specification never changes on the API server.
CHANGEABLE: Final = frozenset({"labels", "annotations", "owner"})


class Step(ABC):
    """One step: an event in the cluster."""

    @abstractmethod
    def happen(self, world: TrialWorld) -> str:
        """Execute the step. Return a sentence about it, "" if nothing happened."""


@dataclass(frozen=True, slots=True)
class SetNode(Step):
    """A node is created or changed."""

    name: str
    settings: tuple[Setting, ...]

    def happen(self, world: TrialWorld) -> str:
        old = world.nodes.get(self.name)
        new = with_settings(old or NodePlan(), self.settings)
        if new == old:
            return ""
        world.set_node(self.name, new)
        verb = "is created" if old is None else "changes"
        return f"node {self.name} {verb}{_listed(self.settings)}"


@dataclass(frozen=True, slots=True)
class RemoveNode(Step):
    """A node is removed."""

    name: str

    def happen(self, world: TrialWorld) -> str:
        if self.name not in world.nodes:
            return ""
        world.remove_node(self.name)
        return f"node {self.name} is deleted"


@dataclass(frozen=True, slots=True)
class PodIs(Step):
    """A pending pod is created or changed."""

    name: str
    settings: tuple[Setting, ...]

    def happen(self, world: TrialWorld) -> str:
        live = world.pods.get(self.name)
        if live is None:
            world.set_pod(self.name, with_settings(PodPlan(), self.settings))
            return f"pod {self.name} is created{_listed(self.settings)}"
        settings = tuple(setting for setting in self.settings if setting.field in CHANGEABLE)
        new = with_settings(live.plan, settings)
        if new == live.plan:
            return ""
        world.set_pod(self.name, new)
        return f"pod {self.name} changes{_listed(settings)}"


@dataclass(frozen=True, slots=True)
class PodIsBound(Step):
    """Another scheduler binds a pod to a card of its node. card: None if it does not name one."""

    name: str
    node: str
    card: int | None
    settings: tuple[Setting, ...]

    def happen(self, world: TrialWorld) -> str:
        live = world.pods.get(self.name)
        if live is not None and live.node:
            return ""
        if live is None:
            world.set_pod(self.name, with_settings(PodPlan(), self.settings))
        world.bind(self.name, self.node, self._written(world))
        asked = _listed(self.settings) if live is None else ""
        card = "" if self.card is None else f", card {self.card}"
        return f"pod {self.name} is bound to {self.node}{card} by another scheduler{asked}"

    def _written(self, world: TrialWorld) -> Texts:
        plan = world.pods[self.name].plan
        units = 0 if plan.like is not None else plan.gpu_mem
        if self.card is None or not units:
            return {}
        uuid = {self.card: f"GPU-{self.node}-{self.card}"}
        return encode(Allocation({0: {self.card: units}}, {}, uuid, UNIT_MIB), LegacyFields(units, units, 1))


@dataclass(frozen=True, slots=True)
class PodGoes(Step):
    """A pod is removed."""

    name: str

    def happen(self, world: TrialWorld) -> str:
        if self.name not in world.pods:
            return ""
        world.remove_pod(self.name)
        return f"pod {self.name} is deleted"


@dataclass(frozen=True, slots=True)
class NamespaceIs(Step):
    """A namespace is created or gets other labels."""

    name: str
    label: str

    def happen(self, world: TrialWorld) -> str:
        labels = {"team": self.label}
        if world.namespaces.get(self.name) == labels:
            return ""
        world.set_namespace(self.name, labels)
        return f"namespace {self.name} has the labels {labels}"


@dataclass(frozen=True, slots=True)
class NextBindIsRefused(Step):
    """The API server rejects our next bind."""

    def happen(self, world: TrialWorld) -> str:
        if world.refuse_next:
            return ""
        world.refuse_next = True
        return "the next bind will be rejected"


def _listed(settings: tuple[Setting, ...]) -> str:
    return f": {', '.join(map(str, settings))}" if settings else ""
