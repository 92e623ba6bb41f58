"""A history of one cluster and of the scheduler processes on it, and what must hold after each of its steps."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.kube import objects
from scheduler.kube.leases import Lease
from scheduler.leader.leader_election import LeaderElection, Timing
from scheduler.leader.leadership import Leadership, LeaseLost
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.queue.entry import PodState
from scheduler.state.cards.booking import is_exclusive, shares_of, written_of
from scheduler.state.cards.node_inventory import GpuState
from scheduler.state.facts.namespace_memory import NamespaceMemory
from scheduler.state.ledger import of_tables
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.world import World
from tests.support.clocks.virtual_time import VirtualLoop
from tests.support.service.process import A_MOMENT_S, EPOCH_S, Process, start
from tests.support.service.wire import Posts, Wire
from tests.support.without_cache import decision
from tests.system.histories.happening import happenings, one_of
from tests.system.histories.node_plans import PLANS, NodePlan, with_uuids
from tests.system.histories.settling import fresh, places_left, views

BIND_TIMEOUT_S: Final = 4.0
# A bind without an answer is settled after 60 s. Much less than the leftover time, which ends every sleep.
SETTLED_AFTER_S: Final = 75.0
LEASE: Final = ("kube-system", "gpushare-scheduler")
TIMING: Final = Timing(lease_duration_s=15, renew_deadline_s=10.0, retry_period_s=2.0)
# Where there are two replicas, no bind request takes effect later: the next leader has the Lease after 5 s.
LATEST_S: Final = 4.5
# The first leader waits for one that nobody has seen.
BEGUN_AFTER_S: Final = TIMING.renew_deadline_s + BIND_TIMEOUT_S + 1.0
# A watch that is never answered is given up then. With that it is still less than the leftover time.
WATCH_STALLED_S: Final = 155.0
LEFTOVER_S: Final = 310.0
CORRECTED_S: Final = 65.0
# Longer than the slowest wire takes for one that is well.
A_REQUEST_S: Final = 1.0
READER: Final = PodReader(ResourceNames())


class History(RuleBasedStateMachine):
    """The world, the process that schedules at present, and the checks. happened: over all histories, for the totals.

    standby: the other replica, in histories that have one.
    """

    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.world = World(lambda: EPOCH_S + self.loop.time())
        self.posts = Posts(self.world)
        self.plans: dict[str, NodePlan] = {}
        self.most: Counter[tuple[str, str]] = Counter()
        self.made = 0
        self.begun = 0
        self.edited: set[str] = set()
        self.whole = True
        self.watches_hang = False
        self.configuration = SchedulerConfiguration()
        self.latency_s = 0.0
        self.replicated = False
        self.process: Process
        self.standby: Process | None = None

    @initialize(
        nodes=st.sets(st.sampled_from(sorted(PLANS)), min_size=2),
        binds=st.sampled_from([2, 64]),
        latency_s=st.sampled_from([0.0, 0.003, 0.2]),
        reserve_after=st.sampled_from(["0", "2s", "5m"]),
        replicated=st.sampled_from([False] * 5 + [True]),
    )
    def begins(self, nodes: set[str], binds: int, latency_s: float, reserve_after: str, *, replicated: bool) -> None:
        for name in sorted(nodes):
            self.show(PLANS[name])
        fields = {"bindTimeout": f"{BIND_TIMEOUT_S:g}s", "maxBindsInFlight": binds, "reserveAfter": reserve_after}
        self.configuration = SchedulerConfiguration.model_validate(fields)
        self.latency_s = latency_s
        self.replicated = replicated
        if replicated:
            self.posts.lasts_s = LATEST_S
        self.run(self.begin_process())
        self.pass_time(BEGUN_AFTER_S if replicated else BIND_TIMEOUT_S)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        possible = tuple(h for h in happenings(type(self)) if h.possible(self))
        name = data.draw(one_of(possible), label="what happens")
        chosen = next(h for h in possible if h.name == name)
        arguments = {key: data.draw(strategy, label=key) for key, strategy in chosen.arguments.items()}
        self.happened[name] += 1
        steps = self.happened["steps"]
        getattr(self, name)(**arguments)
        if self.happened["steps"] == steps:
            self.pass_time()

    # What happenings do

    def show(self, plan: NodePlan) -> None:
        """The node comes, or is like this now."""
        self.plans[plan.name] = plan
        for card, units in plan.units.items():
            self.most[plan.name, card] = max(self.most[plan.name, card], units)
        node, nodes = plan.wire(), self.world.nodes
        if nodes.find(plan.name) is None:
            nodes.add(node)
        else:
            nodes.update(plan.name, lambda old: objects.Node(_head(old, node), node.spec, node.status))

    def pods(self, *, assigned: bool, ours: bool = False) -> list[objects.PodObject]:
        """Live pods, with a node or without."""
        live = [pod for pod in self.world.pods if pod.status.phase not in FINISHED]
        live = [pod for pod in live if bool(pod.spec.node_name) == assigned]
        return [pod for pod in live if pod.spec.scheduler_name in self.process.engine.scheduler_names or not ours]

    @property
    def replicas(self) -> list[Process]:
        """Whoever schedules, and the standby where there is one."""
        return [self.process] if self.standby is None else [self.process, self.standby]

    def lease(self) -> Lease | None:
        return self.world.leases.find(*LEASE)

    async def begin_process(self) -> None:
        """Another one schedules from now on: the standby, where there is one."""
        self.process, self.standby = self.standby or await self.new_process(), None
        if self.replicated:
            await self.begin_standby()

    async def begin_standby(self) -> None:
        self.standby = await self.new_process()

    async def new_process(self) -> Process:
        self.begun += 1
        wire = Wire(self.world, self.posts, latency_s=self.latency_s, seed=self.made)
        leadership = None
        if self.replicated:
            election = LeaderElection(*LEASE, f"replica-{self.begun}", TIMING)
            rng = random.Random(self.begun)  # noqa: S311 - repeatable
            wall = lambda: f"at {self.loop.time():.6f}"  # noqa: E731
            leadership = Leadership(wire, election, now_s=self.loop.time, wall=wall, rng=rng)
        return start(wire, self.configuration, seed=self.made, leadership=leadership)

    def see_who_leads(self) -> None:
        """Who has lost the Lease has ended, and is started again; who leads is the one that is looked at."""
        if self.standby is None:
            return
        if self.standby.service.leads() and not self.process.service.leads():
            self.process, self.standby = self.standby, self.process
        for one in self.replicas:
            if one.task.done():
                error = one.task.exception()
                assert isinstance(error, BaseExceptionGroup)
                assert error.split(LeaseLost)[1] is None, error
                self.happened["leases lost"] += 1
                self.run(self.begin_process() if one is self.process else self.begin_standby())

    def run(self, doing: Coroutine[Any, Any, None]) -> None:
        try:
            self.loop.run_until_complete(doing)
        except BaseException:
            self.whole = False
            raise

    def pass_time(self, seconds: float = A_MOMENT_S) -> None:
        """Let everything happen that is due, and look whether all is as it must be."""
        self.happened["steps"] += 1
        self.run(asyncio.sleep(seconds))
        try:
            self.see_who_leads()
            self.check()
        except BaseException:
            self.whole = False
            raise

    @property
    def settled_after_s(self) -> float:
        """How long until nothing is left of what went wrong."""
        return SETTLED_AFTER_S + (WATCH_STALLED_S if self.watches_hang else 0.0)

    def spare_requests(self) -> None:
        """From now on nothing goes wrong."""
        for one in self.replicas:
            one.wire.faults.clear()
            one.wire.resume_watches()

    # What must hold

    def check(self) -> None:
        for process in self.replicas:
            if process.task.done():
                process.task.result()
            self.check_no_pod_is_lost(process)
            if process.has_changed():
                self.check_state(process)
        self.check_our_bookings()

    def check_state(self, process: Process) -> None:
        """Recount what the process holds, which is the same as long as it hears nothing and does nothing."""
        assert of_tables(process.engine.tables) == process.expected_ledger()
        self.check_sums(process)
        self.check_namespaces(process)
        process.engine.queue.validate()
        process.assert_no_pod_sleeps_that_fits()

    def check_sums(self, process: Process) -> None:
        """What scores and the node's own limit are read from."""
        tables = process.engine.tables
        cards, stored = tables.cards, tables.cards.stored
        usable = stored.usable
        assert np.array_equal(cards.total, (stored.units * usable).sum(axis=0))
        assert np.array_equal(cards.booked, cards.total - (stored.free * usable).sum(axis=0))
        assert np.array_equal(stored.available, usable & (stored.exclusive == 0))
        ready = cards.state == int(GpuState.READY)
        assert np.array_equal(cards.node_free, np.where(ready, cards.allocatable - cards.counted, 0))
        assert np.array_equal(cards.held, stored.holders.sum(axis=0))
        assert cards.isolation == Counter(slot.card.isolation for slots in cards.slots for slot in slots)
        assert cards.instances == sum(bool(slot.card.parent) for slots in cards.slots for slot in slots)
        for name, row in tables.row_of.items():
            inventory = tables.inventory(name)
            for slot, card in enumerate(inventory.cards if inventory.has_uuids else ()):
                assert (row, slot) in cards.announced.places(card.uuid)

    def check_namespaces(self, process: Process) -> None:
        """What metrics say that they request. See docs/develop/decisions/0068."""
        tables, requested, above = process.engine.tables, Counter[str](), Counter[str]()
        nominated = (record for row in tables.row_of.values() for record in tables.nominated_on(row))
        for record in chain(tables.records(), nominated):
            units = record.pod.template.gpu_units
            if units and record.held is not None:
                unit_mib = int(tables.cards.unit_mib[tables.row_of[record.node]])
                requested[record.pod.key.namespace] += units * unit_mib
                request = record.pod.template.gpu_request
                if request is not None and request.limit_units is not None and request.limit_units > units:
                    above[record.pod.key.namespace] += (request.limit_units - units) * unit_mib
        found = tables.fact(NamespaceMemory)
        assert found.requested == {namespace: mib * 2**20 for namespace, mib in requested.items()}
        assert found.above == {namespace: mib * 2**20 for namespace, mib in above.items()}

    def check_no_pod_is_lost(self, process: Process) -> None:
        """A pod that waits for us is known to wait, or has been placed; what is assumed is being bound."""
        engine = process.engine
        alive = {pod.metadata.uid: pod for pod in self.world.pods}
        for pod in process.wire.told["pods"]:
            uid, waits = pod.metadata.uid, not (pod.spec.node_name or pod.metadata.deletion_timestamp)
            if waits and pod.spec.scheduler_name in engine.scheduler_names:
                assert uid in engine.queue or engine.tables.record(uid) is not None, f"{pod.metadata.name} is lost"
        for record in engine.tables.records():
            uid = record.pod.key.uid
            if record.assumed and uid in alive and engine.queue.state(uid) is not PodState.IN_FLIGHT:
                assert alive[uid].spec.node_name, f"{record.pod.key} is assumed, and nothing binds it"

    def check_our_bookings(self) -> None:
        """Our own bindings alone never book more of a card than it has ever had, nor share what is exclusive."""
        booked: Counter[tuple[str, str]] = Counter()
        holders: Counter[tuple[str, str]] = Counter()
        exclusive: set[tuple[str, str]] = set()
        for wire in self.pods(assigned=True, ours=True):
            if self.posts.are_ours(wire):
                pod = READER.read(wire)
                written = written_of(pod)
                assert not written.problem
                for share in shares_of(written):
                    card = wire.spec.node_name, share.uuid or f"#{share.index}"
                    booked[card] += share.units
                    holders[card] += 1
                    exclusive |= {card} if is_exclusive(pod) else set()
        over = {card: units for card, units in booked.items() if units > self.most[card]}
        assert not over, f"over-committed by us: {over}"
        assert not {card for card in exclusive if holders[card] > 1}

    # The end

    def teardown(self) -> None:
        try:
            if self.whole and hasattr(self, "process"):
                self.check_that_all_ends_well()
                self.count()
        finally:
            self.loop.run_until_complete(self.cancel_everything())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def check_that_all_ends_well(self) -> None:
        """Once nothing goes wrong, whatever can be placed is bound, and the others say why not."""
        self.spare_requests()
        self.leave_no_history()
        self.pass_time(self.settled_after_s)
        assert [one.service.leads() for one in self.replicas] == [True, False][: len(self.replicas)]
        wire, engine = self.process.wire, self.process.engine
        assert sorted(wire.told["pods"], key=_name) == sorted(self.pods_shown(), key=_name)
        assert sorted(wire.told["nodes"], key=_name) == sorted(self.world.nodes, key=_name)
        assert not [record.pod.key for record in engine.tables.records() if record.assumed]
        assert not self.process.service.dispatch.being_bound
        knows_nothing_yet = self.fresh()
        profile = self.process.cycle.profile
        assert views(profile, engine.tables) == views(profile, knows_nothing_yet.tables)
        waits_for_time = {str(e.pod.key) for e in engine.queue if e.state is PodState.BACKING_OFF}
        asleep = [place for place in places_left(knows_nothing_yet) if place.split()[0] not in waits_for_time]
        assert not asleep, f"{asleep} would be possible"
        # After refusals by a policy a pod is tried again within five minutes; so is what could not be written.
        self.pass_time(LEFTOVER_S)
        assert places_left(self.fresh()) == []
        for pod in self.pods(assigned=False, ours=True):
            if pod.metadata.deletion_timestamp:
                continue  # only its finalizer keeps it: nothing is scheduled that is being deleted
            said = [c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"]
            assert said, f"{pod.metadata.name} waits without a reason"
        self.check_that_reasons_are_true()

    def fresh(self) -> Engine:
        """An engine that knows the world and our reservations, which others may not use, and nothing else."""
        made = fresh(self.world, build_engine(self.configuration))
        for kept in self.process.engine.nominations.reserved.values():
            made.nominations.restore(kept)
        return made

    def check_that_reasons_are_true(self) -> None:
        """A minute after the last change, a pod that fits nowhere says why (docs/develop/decisions/0014)."""
        for plan in list(self.plans.values())[:1]:
            self.world.nodes.patch(plan.name, unschedulable=True)
        process = self.process
        # A reservation that expires is a change, too; each further one lasts twice as long.
        version = -1
        while version != process.engine.nominations.version:
            version = process.engine.nominations.version
            self.pass_time(CORRECTED_S)
        for wire in self.pods(assigned=False, ours=True):
            if process.engine.queue.state(wire.metadata.uid) is PodState.UNSCHEDULABLE:
                pod = READER.read(wire)
                with process.engine.nominations.seen_by(pod):
                    found = decision(process.cycle.profile, process.engine.tables, pod, 0)
                assert isinstance(found, NoFit)
                said = next(c.message for c in wire.status.conditions if c.type == "PodScheduled")
                status = next(one for one in process.service.dispatch.status.all() if one.pod == pod.key)
                reasons = found.diagnosis.rejected, *sorted(reason.reason for reason in found.diagnosis.reasons)
                assert said == status.latest.message or self.loop.time() - status.since_s < A_REQUEST_S
                # What it wants and what there is may be five minutes old, and so may the words that say where.
                told = status.reasons[: len(reasons)]
                assert told == reasons, f"{pod.key} says {said}, not {found.diagnosis.message}"

    def leave_no_history(self) -> None:
        """From here on what is believed depends on what there is: no edited pod, no UUID on two nodes."""
        for pod in list(self.world.pods):
            if pod.metadata.uid in self.edited:
                self.world.pods.remove(pod.metadata.namespace, pod.metadata.name)
        for plan in list(self.plans.values()):
            self.show(with_uuids(plan, lambda card, name=plan.name: f"GPU-{name}-{card.index}"))  # type: ignore[misc]

    def pods_shown(self) -> list[objects.PodObject]:
        return [pod for pod in self.world.pods if pod.status.phase not in FINISHED]

    def count(self) -> None:
        self.happened["placed"] += self.process.cycle.placed
        self.happened["no fit"] += self.process.cycle.refused
        self.happened["bound"] += sum(self.posts.are_ours(pod) for pod in self.world.pods)
        preempted = self.process.metrics.registry.get_sample_value("scheduler_preemption_victims_count")
        self.happened["preemptions"] += int(preempted or 0)
        for result in ("kept", "given_up"):
            self.happened[f"reserved: {result}"] += int(self.process.sample("reservations_total", result=result))
        self.happened["waiting at the end"] += len(self.pods(assigned=False, ours=True))

    async def cancel_everything(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)


def _head(old: objects.Node, new: objects.Node) -> objects.ObjectMeta:
    meta, shown = old.metadata, new.metadata
    return objects.ObjectMeta(
        meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        creation_timestamp=meta.creation_timestamp,
        labels=shown.labels,
        annotations=shown.annotations,
    )


def _name(found: Any) -> tuple[str, str]:  # noqa: ANN401 - an object of any kind
    return found.metadata.namespace, found.metadata.name
