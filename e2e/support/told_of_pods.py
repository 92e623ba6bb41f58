"""Messages that users read about an attempted pod, and the differences between ours and kube-scheduler's.

docs/differences.md explains the intended differences.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.support.gpu_site import condition
from scheduler.plugins import registry
from tests.differential.comparison import BY_NAME, POD_LEVEL, PREFERENCE
from tests.differential.wire import Answer

OURS: Final = names.SCHEDULER_NAME
THEIRS: Final = "default-scheduler"
_WEIGHTS: Final = {plugin.name: plugin.weight for plugin in registry.describe()}
_OF_CLAIMS: Final = "no new claims to deallocate, "
_NOBODY_PREEMPTED: Final = " not found"
_PREEMPTION: Final = " preemption: "


@dataclass(frozen=True, slots=True)
class Told:
    """Report on a pod. node: "" if it waits. reason, message: its condition's. event: type, reason, action, note."""

    node: str
    reason: str
    message: str
    event: tuple[str, ...]


def told(pod: Json, event: Json) -> Told:
    """Return the report from the pod and the Event about its attempt, as on the API server."""
    said, noted = condition(pod), (event["type"], event["reason"], event["action"], event["note"])
    return Told(pod["spec"].get("nodeName", ""), said.get("reason", ""), said.get("message", ""), noted)


def best_nodes(answer: Answer) -> frozenset[str]:
    """Return the feasible nodes with the highest weighted sum: kube-scheduler chooses one of them at random."""
    totals = Counter(dict.fromkeys(answer.feasible, 0))
    for plugin, scores in answer.scores.items():
        for name, points in scores.normalized.items():
            totals[name] += points * _WEIGHTS[plugin]
    return frozenset(name for name, total in totals.items() if total == max(totals.values()))


def differing(
    theirs: Told, ours: Told, answer: Answer, excused: Collection[str]
) -> Iterator[tuple[str, object, object]]:
    """Yield (field, kube-scheduler's, ours). answer: the oracle's. excused: members of ON_PURPOSE allowed here."""
    if PREFERENCE in excused and not theirs.node:
        if ours.node not in answer.feasible:
            yield "node", answer.feasible, ours
    elif theirs.node and ours.node:
        yield from _placed(theirs, ours, answer, excused)
    else:
        if not theirs.message.startswith(answer.message):
            yield "message", f"{answer.message} (recorded)", theirs.message
        expected, got = (_shared(each, theirs, excused) for each in (theirs, ours))
        if expected != got:
            yield "pod that waits", theirs, ours


def _placed(theirs: Told, ours: Told, answer: Answer, excused: Collection[str]) -> Iterator[tuple[str, object, object]]:
    """Yield differences for a bound pod. Ties go to the first name."""
    best = best_nodes(answer)
    if theirs.node not in best:
        yield "node", f"of {sorted(best)} (recorded)", theirs.node
    if ours.node not in (answer.feasible if POD_LEVEL in excused else (min(best),)):
        yield "node", min(best), ours.node
    expected, got = (tuple(part.removesuffix(each.node) for part in each.event) for each in (theirs, ours))
    if expected != got:
        yield "event", theirs.event, ours.event


def _shared(each: Told, theirs: Told, excused: Collection[str]) -> Told:
    """Return the report without the words that differ on purpose."""
    *kind, note = each.event

    def kept(said: str) -> str:
        if BY_NAME in excused:
            return ""
        if theirs.message.endswith(_NOBODY_PREEMPTED):
            return said.partition(_PREEMPTION)[0].removesuffix(_NOBODY_PREEMPTED)
        return said.replace(_OF_CLAIMS, "")

    return replace(each, message=kept(each.message), event=(*kind, kept(note)))
