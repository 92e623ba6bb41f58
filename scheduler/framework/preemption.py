"""PostFilter's answers for an unschedulable pod: the victims to evict, or why preemption does not help."""

from dataclasses import dataclass
from typing import TypeAlias

from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Eviction of pods so that a pod of higher priority fits on a node.

    cards: cards that the pod will get there. victims: pods on `node`, most important first. removed: victims that are
    not terminating yet. violations: victims that count as protected when nodes are compared, including those that
    already terminate and those whose eviction the API server denied. protected: how many of `removed` a disruption
    budget protects.
    """

    pod: Pod
    node: str
    cards: tuple[CardShare, ...]
    victims: tuple[Pod, ...]
    removed: tuple[Pod, ...]
    violations: int
    protected: int

    @property
    def message(self) -> str:
        """Text for the user of the pod, as kube-scheduler writes it from 1.37 on."""
        placement = f"found a potential placement for pod on node {self.node}"
        return f"preemption: {placement}, preempting {len(self.victims)} victims"

    @property
    def reasons(self) -> tuple[str, ...]:
        """The part that tells two messages apart."""
        return (self.message,)


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Preemption does not help the pod. message: text for its user. reasons: the part that tells two messages apart.

    retry: try later even if nothing changes. keep_nomination: the nomination stays.
    """

    message: str
    reasons: tuple[str, ...] = ()
    retry: bool = False
    keep_nomination: bool = False


PostFilterResult: TypeAlias = Preemption | NoPreemption
