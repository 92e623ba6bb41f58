"""Whether the scheduler decides about the pods that request GPU memory, for `kubectl gpushare doctor`. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from config.protocol import names
from scheduler.kube import objects
from scheduler.process.terminal import typed
from scheduler.tools.doctor.facts import FINISHED, SCHEDULER_LABEL, ClusterFacts
from scheduler.tools.explain.findings import ClusterFinding, Severity, count

_SCHEDULER: Final = "=".join(SCHEDULER_LABEL)
START: Final = typed("kubectl", "-n", "kube-system", "get", "deploy,pods", "-l", _SCHEDULER)

_LOGS: Final = typed("kubectl", "-n", "kube-system", "logs", "-l", _SCHEDULER, "--prefix", "--tail=100")
_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)
_DECIDED: Final = "PodScheduled"
# The scheduler writes why a pod does not fit within seconds, or minutes while it binds a backlog of thousands.
_DECIDED_WITHIN_S: Final = 300
_LONGEST: Final = 64


def pods(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Pods that bypass the scheduler, and pods that wait for it although it does not decide about them."""
    asking = [pod for pod in facts.pods if pod.status.phase not in FINISHED and _asks(pod, facts.resources.gpu_mem)]
    found = [*_strangers(facts, asking), *_for_others(facts, asking), *_undecided(facts, asking)]
    yield from found
    if not found:
        yield ClusterFinding(
            check="pods", severity=Severity.OK, message=f"{count(asking, 'pod')} with GPU memory, all of ours"
        )


def _strangers(facts: ClusterFacts, asking: Sequence[objects.PodObject]) -> Iterator[ClusterFinding]:
    strangers = [
        f"{_name(pod)} on node {pod.spec.node_name}"
        for pod in asking
        if pod.spec.node_name and not any(key in (pod.metadata.annotations or {}) for key in _DECIDING)
    ]
    if strangers:
        message = "pods came past the scheduler and count on every card of their nodes"
        remedy = f"{_create_again(facts)}; deploy/manifests/scheduler-name-policy.yaml refuses such"
        yield ClusterFinding(
            check="pods", severity=Severity.FAILED, message=message, about=tuple(sorted(strangers)), remedy=remedy
        )


def _for_others(facts: ClusterFacts, asking: Sequence[objects.PodObject]) -> Iterator[ClusterFinding]:
    waiting: dict[str, list[str]] = {}
    for pod in asking:
        if not pod.spec.node_name and pod.spec.scheduler_name not in facts.scheduler_names:
            waiting.setdefault(pod.spec.scheduler_name, []).append(_name(pod))
    for scheduler, others in sorted(waiting.items()):
        message = f"{count(others, 'pod')} with GPU memory waiting for {scheduler[:_LONGEST]}, which chooses no card"
        about, remedy = tuple(sorted(others)), _create_again(facts)
        yield ClusterFinding(check="pods", severity=Severity.FAILED, message=message, about=about, remedy=remedy)


def _undecided(facts: ClusterFacts, asking: Sequence[objects.PodObject]) -> Iterator[ClusterFinding]:
    """Waiting pods of ours, with or without a running scheduler. Pods with a scheduling gate are left out."""
    waiting = [
        pod
        for pod in asking
        if not pod.spec.node_name
        and pod.spec.scheduler_name in facts.scheduler_names
        and not pod.spec.scheduling_gates
        and not pod.metadata.deletion_timestamp
    ]
    severity, remedy = Severity.FAILED, START
    if facts.nobody_schedules:
        verb, them = ("is", "it") if len(waiting) == 1 else ("are", "them")
        why = f"{verb} waiting, and no scheduler is running that decides about {them}"
    else:
        waiting = [pod for pod in waiting if _is_overdue(pod, facts)]
        verb = "has" if len(waiting) == 1 else "have"
        why = f"{verb} been waiting for more than {_DECIDED_WITHIN_S // 60} minutes without a decision"
        severity, remedy = Severity.WARNING, _LOGS
    if waiting:
        message, about = f"{count(waiting, 'pod')} with GPU memory {why}", tuple(sorted(map(_name, waiting)))
        yield ClusterFinding(check="pods", severity=severity, message=message, about=about, remedy=remedy)


def _is_overdue(pod: objects.PodObject, facts: ClusterFacts) -> bool:
    """Whether the scheduler should have decided by now. False if the pod's age is unknown."""
    is_decided = any(condition.type == _DECIDED for condition in pod.status.conditions)
    return not is_decided and facts.waiting_s.get(pod.metadata.uid, 0.0) > _DECIDED_WITHIN_S


def _create_again(facts: ClusterFacts) -> str:
    ours = min(facts.scheduler_names, key=lambda name: (name != names.SCHEDULER_NAME, name))
    return f"create them again with schedulerName: {ours}"


def _name(pod: objects.PodObject) -> str:
    return f"pod/{pod.metadata.namespace}/{pod.metadata.name}"


def _asks(pod: objects.PodObject, gpu_mem: str) -> bool:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        asked = container.resources
        for amounts in (asked.limits, asked.requests) if asked else ():
            if str((amounts or {}).get(gpu_mem, 0)) != "0":
                return True
    return False
