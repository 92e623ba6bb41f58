"""What PostFilter answers for a pod that fits nowhere: whom to make go, or that nothing helps."""

from dataclasses import dataclass
from typing import TypeAlias

from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Pods that have to go, so that one of higher priority fits on a node.

    cards: those that it is to get there. victims: of `node`, the most important one first. removed: those of them that
    do not go already. violations: how many victims count as protected where places are compared: those that go already
    and those that the API server has refused to remove, too. protected: how many of `removed` a disruption budget
    protects.
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
    """Nothing can be done for the pod. message: for its user; reasons: what of it tells it from others.

    again: it is worth another try by and by, whatever happens. keeps: the place that is kept for it stays so.
    """

    message: str
    reasons: tuple[str, ...] = ()
    again: bool = False
    keeps: bool = False


PostFilterResult: TypeAlias = Preemption | NoPreemption
