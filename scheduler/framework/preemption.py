"""PostFilter's answers for a pod that fits nowhere: the victims to evict, or why preemption does not help."""

from dataclasses import dataclass
from typing import TypeAlias

from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Pods to evict, so that one of higher priority fits on a node.

    cards: cards that the pod will get there. victims: of `node`, the most important one first. removed: victims that do
    not terminate yet. violations: victims that count as protected in the comparison of nodes, including those that
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


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Preemption does not help the pod. message: for its user; reasons: the part of it that makes two messages differ.

    retry: try later even if nothing changes. keep_nomination: the nomination stays.
    """

    message: str
    reasons: tuple[str, ...] = ()
    retry: bool = False
    keep_nomination: bool = False


PostFilterResult: TypeAlias = Preemption | NoPreemption
