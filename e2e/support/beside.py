"""Gives both schedulers the pods of one scenario, one scheduler at a time, in the same state of the cluster."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from e2e.control_plane.admin import Json
from e2e.support.scenario_site import Preempted, ScenarioSite
from e2e.support.told_of_pods import OURS, THEIRS, best_nodes, differing
from tests.differential import wire
from tests.differential.comparison import on_purpose
from tests.differential.manifests import Manifest, Scenario
from tests.differential.table import scenarios
from tests.differential.victims import keys_of
from tests.differential.wire import Candidate, Probe, Recorded

# In either process, the watch of one kind may lag behind that of another.
TIMES_ASKED: Final = 4


class Asked(NamedTuple):
    """A scenario with the oracle's recorded answers."""

    scenario: Scenario
    recorded: Recorded


@dataclass
class Comparison:
    """Comparison of both schedulers. ours: our profile's scheduler name. victims: max. preempting probes per scenario.

    again: answers that changed when both were queried again.
    """

    site: ScenarioSite
    ours: str = OURS
    victims: int = 1
    times_asked: int = TIMES_ASKED
    compared: int = 0
    preempted: int = 0
    excused: int = 0
    again: list[tuple[str, object, object]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.compared} pods compared, {self.preempted} of them preempted, {len(self.differences)} differences, "
            f"{self.excused} may differ on purpose, {len(self.again)} other answers when asked again"
        )

    async def of(self, asked: Asked) -> None:
        """Compare one scenario. Raises UnexpectedAnswer, NotSeen."""
        async with self.site.having(asked.scenario):
            for written, probe in _probes(asked):
                if probe.answer.invalid:
                    if not probe.answer.invalid.endswith(said := await self.site.refused(written)):
                        self._note(asked, written, [("refused by the API server", probe.answer.invalid, said)])
                elif not _candidates(probe):
                    await self._verdicts(asked, written, probe)
        preempting = (each for each in _probes(asked) if _candidates(each[1]))
        for written, probe in islice(preempting, self.victims):
            await self._victims(asked, written, probe)

    async def _verdicts(self, asked: Asked, written: Manifest, probe: Probe) -> None:
        excused = on_purpose(asked.recorded, probe)
        for _ in range(self.times_asked):
            theirs, ours = [await self.site.told(written, name) for name in (THEIRS, self.ours)]
            found = list(differing(theirs, ours, probe.answer, excused))
            if not found:
                break
            self.again += found
        self.compared += 1
        self.excused += bool(excused)
        self._note(asked, written, found)

    async def _victims(self, asked: Asked, written: Manifest, probe: Probe) -> None:
        for _ in range(self.times_asked):
            theirs, ours = [await self._preempted(asked, written, probe, name) for name in (THEIRS, self.ours)]
            found = list(_of_victims(asked, probe, theirs, ours))
            if not found:
                break
            self.again += found
        self.compared += 1
        self.preempted += 1
        self._note(asked, written, found)

    async def _preempted(self, asked: Asked, written: Manifest, probe: Probe, name: str) -> Preempted:
        expected = {node: frozenset(one.victims) for node, one in _candidates(probe).items()}
        async with self.site.having(asked.scenario):
            return await self.site.preempted(written, name, expected)

    def _note(self, asked: Asked, written: Manifest, found: list[tuple[str, object, object]]) -> None:
        about = f"{asked.scenario.name} {written['metadata']['name']}"
        self.differences += [f"{about}, {what}\n  kube-scheduler: {one}\n  we: {other}" for what, one, other in found]


def of_group(group: str) -> list[Asked]:
    """Return the recorded scenarios that users and nodes can set up; those with the most different answers first."""
    pairs = map(Asked, scenarios(group), wire.read(group)[1])
    return sorted(filter(can_be_set_up, pairs), key=_answers)[::-1]


def can_be_set_up(asked: Asked) -> bool:
    """Whether all pods have nodes (schedulers would attempt the others) and the API server would accept them."""
    pods = [each for each in asked.scenario.objects if each["kind"] == "Pod"]
    return all("nodeName" in pod["spec"] and _has_its_class(pod) for pod in pods)


def _probes(asked: Asked) -> Iterator[tuple[Manifest, Probe]]:
    """Yield probes, as written and as recorded, that can be attempted and that end without a claim controller."""
    waiting = {
        each["metadata"]["name"]
        for each in asked.scenario.objects
        if each["kind"] == "PersistentVolumeClaim" and "volumeName" not in each["spec"]
    }
    for written, probe in zip(asked.scenario.probes, asked.recorded.probes, strict=True):
        volumes = written["spec"].get("volumes", ())
        used = {each.get("persistentVolumeClaim", {}).get("claimName") for each in volumes}
        if _has_its_class(written) and not (probe.answer.feasible and used & waiting):
            yield written, probe


def _answers(asked: Asked) -> int:
    """Return the number of different answers."""
    found = (probe.answer for _, probe in _probes(asked))
    return len({answer.message or min(best_nodes(answer)) for answer in found if not answer.invalid})


def _candidates(probe: Probe) -> dict[str, Candidate]:
    preemption = probe.answer.preemption
    return (preemption.candidates or {}) if preemption else {}


def _of_victims(asked: Asked, probe: Probe, theirs: Preempted, ours: Preempted) -> Iterator[tuple[str, object, object]]:
    """Yield the differences in preemption; a node that ties on the whole key is as good."""
    candidates = _candidates(probe)
    keys = keys_of(asked.recorded, candidates)
    best = {node for node, key in keys.items() if key == min(keys.values())}
    for each in (theirs, ours):
        if each.node not in best or each.victims != frozenset(candidates[each.node].victims):
            yield "preemption", theirs, ours
            return
    if theirs.message != ours.message:
        yield "message", theirs.message, ours.message


def _has_its_class(pod: Json) -> bool:
    """Return whether the RuntimeClass works: it has one overhead for all pods, but here each pod has its own."""
    return "runtimeClassName" not in pod["spec"]
