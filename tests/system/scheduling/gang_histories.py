"""Random histories of gangs and single pods on full cards, through the real service, with faults of requests."""

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.effects import Bind
from scheduler.kube import objects
from scheduler.queue.entry import PodState
from scheduler.testing.cluster.faults import Effect, Fail, Refuse, RequestFault, Silence, Slow, Verb
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node
from tests.support.service.process import A_MOMENT_S, Process, start
from tests.support.service.wire import Posts, Wire
from tests.system.histories.settling import fresh

_UNITS: Final = 16
_FAULTS: Final[tuple[RequestFault, ...]] = (
    Refuse(409),
    Refuse(422),
    Fail(500),
    Fail(503),
    Fail(504, Effect.AT_ONCE),
    Silence(),
    Silence(Effect.AT_ONCE),
    Slow(0.05, 0.05),
)
# The time-out of a Binding, its retries, and the back-offs of its pod and of its gang.
_SETTLED_S: Final = 120.0


@dataclass
class GangHistory:
    """One history. happened: totals. touched: gangs of which a pod was ended since one of them had no node."""

    of: World
    rng: random.Random
    happened: Counter[str]
    minimums: dict[str, int] = field(default_factory=dict)
    made: int = 0
    touched: set[str] = field(default_factory=set)

    async def run(self, steps: int) -> None:
        for number in range(self.rng.randint(1, 3)):
            self.of.nodes.add(wire_node(f"n{number}", [_UNITS] * self.rng.randint(2, 8)))
        latency_s = self.rng.choice((0.0, 0.003, 0.1))
        posts = Posts(self.of)
        process = start(Wire(self.of, posts, latency_s=latency_s), seed=self.made)
        try:
            await asyncio.sleep(A_MOMENT_S)
            for _ in range(steps):
                process = await self._step(process, posts)
                process.engine.queue.validate()
                self._no_gang_is_in_part(process)
            process.wire.faults.clear()
            await asyncio.sleep(_SETTLED_S)
            self._all_is_well(process)
        finally:
            await process.kill()

    async def _step(self, process: Process, posts: Posts) -> Process:
        match self.rng.choices(range(6), (8, 3, 4, 3, 3, 1))[0]:
            case 0:
                self._gang_comes()
            case 1:
                self._comes(self.rng.choice((4, 8, _UNITS)), {})
            case 2:
                self._end_some()
            case 3:
                self._run_some()
            case 4:
                fault = self.rng.choice(_FAULTS)
                process.wire.faults.add(Verb.BIND, fault, count=self.rng.choice((1, 2)), probability=0.5)
                self.happened[type(fault).__name__] += 1
            case _:
                process = await self._killed(process, posts)
        await asyncio.sleep(self.rng.choice((0.0, A_MOMENT_S, 0.3, 2.0, 15.0)))
        return process

    async def _killed(self, process: Process, posts: Posts) -> Process:
        """Kill the process, perhaps between two Bindings of a gang, and start another after its requests have ended."""
        self._gang_comes()
        await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.004, A_MOMENT_S)))
        await process.kill()
        process.wire.deliver_late()
        posts.end_by(asyncio.get_running_loop().time())
        self.happened["kills"] += 1
        process = start(Wire(self.of, posts), seed=self.made)
        await asyncio.sleep(A_MOMENT_S)
        return process

    def _comes(self, units: int, annotations: dict[str, str]) -> None:
        self.made += 1
        self.of.pods.create(manifest(f"p{self.made}", units, uid=f"uid-{self.made}", annotations=annotations))

    def _gang_comes(self) -> None:
        """Some of its pods may be missing, or be more than it needs."""
        gang = f"g{self.rng.randint(0, 15)}"
        minimum = self.minimums.setdefault(gang, self.rng.randint(2, 8))
        units = self.rng.choice(((_UNITS,), (8, _UNITS)))
        for _ in range(self.rng.choice((1, minimum, minimum, minimum + 1))):
            self._comes(self.rng.choice(units), {names.GANG: gang, names.GANG_MIN: str(minimum)})

    def _end_some(self) -> None:
        """End a gang, or any pods."""
        alive = [pod for pod in self.of.pods if pod.status.phase not in FINISHED]
        if not alive:
            return
        first = self.rng.choice(alive)
        gang = (first.metadata.annotations or {}).get(names.GANG)
        whole = gang is not None and self.rng.random() < 0.8
        if gang is not None:
            self.touched.add(gang)
        for pod in [pod for pod in alive if _gang(pod) == gang] if whole else [first]:
            if pod.spec.node_name and self.rng.random() < 0.3:
                self.of.pods.set_phase("default", pod.metadata.name, "Succeeded")
            else:
                self.of.pods.remove("default", pod.metadata.name)

    def _run_some(self) -> None:
        for pod in list(self.of.pods):
            if pod.spec.node_name and pod.status.phase == "Pending" and self.rng.random() < 0.5:
                self.of.pods.set_phase("default", pod.metadata.name, "Running")

    def _no_gang_is_in_part(self, process: Process) -> None:
        """Assert that no gang has some pods with a node but too few.

        Unless one of them runs, or a Binding is being sent or retried.
        """
        state = process.engine.queue.state
        errors = {entry.pod.key.uid: entry.errors for entry in process.engine.queue}
        for gang, pods in self._gangs().items():
            placed = [pod for pod in pods if pod.spec.node_name]
            if not placed and PodState.IN_FLIGHT not in map(state, (pod.metadata.uid for pod in pods)):
                self.touched.discard(gang)
            runs = any(pod.status.phase == "Running" for pod in pods)
            if runs or gang in self.touched or len(placed) in {0, *range(self.minimums[gang], len(pods) + 1)}:
                continue
            self.happened["in part"] += 1
            uids = [pod.metadata.uid for pod in pods if not pod.spec.node_name]
            retried = (uid for uid in uids if state(uid) is PodState.BACKING_OFF and errors[uid])
            sent = (uid for uid in uids if state(uid) is PodState.IN_FLIGHT)
            assert any(retried) or any(sent), f"{gang} is in part: {[state(uid) for uid in uids]}"

    def _gangs(self) -> dict[str, list[objects.PodObject]]:
        found: dict[str, list[objects.PodObject]] = defaultdict(list)
        for pod in self.of.pods:
            gang = _gang(pod)
            if gang and pod.status.phase not in FINISHED and not pod.metadata.deletion_timestamp:
                found[gang].append(pod)
        return found

    def _all_is_well(self, process: Process) -> None:
        """Assert that whatever fits is bound, and every other pod says why not."""
        knows_nothing_yet = fresh(self.of, build_engine(SchedulerConfiguration(), preempts=False))
        binds = []
        while (step := knows_nothing_yet.step(0.0, 0)) is not None:
            binds += [one.placement.pod.key.name for one in step.effects if isinstance(one, Bind)]
        assert not binds, f"{binds} would be possible"
        for pod in self.of.pods:
            self.happened["bound" if pod.spec.node_name else "waits"] += 1
            if not pod.spec.node_name and process.engine.queue.state(pod.metadata.uid) is not PodState.GATED:
                said = [c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"]
                assert said, f"{pod.metadata.name} waits without a reason"


def _gang(pod: objects.PodObject) -> str | None:
    return (pod.metadata.annotations or {}).get(names.GANG)
