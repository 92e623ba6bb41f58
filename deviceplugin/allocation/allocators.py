"""Allocate and PreStartContainer: gives each container exactly the cards that the scheduler chose for it.

    cdi:          Allocate answers a device name ──────────────────────────────┐
    environment:  Allocate finds the container, answers its environment ───────┤
                                                                               ▼
    PreStartContainer finds the container, checks the answer that the kubelet recorded, whichever mode it is of, has
    its isolation prepared, and writes the CDI spec where the answer is a device name

Neither guesses: an ambiguous call is rejected, with a message that the pod's events will show.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from config.protocol import environment
from config.protocol.inventory import Card
from deviceplugin.allocation import identify
from deviceplugin.allocation.container_share import (
    ContainerShare,
    RecordedAnswer,
    container_environment,
    replay_objection,
)
from deviceplugin.allocation.decision import NoAllocation, Share, Undecided, decided
from deviceplugin.allocation.identify import NotIdentified, PodContainers
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.recorded import recorded_answer
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.cdi import spec
from deviceplugin.cdi.edits import Additions, Edits
from deviceplugin.cdi.mode import VOLUME_MOUNTS, Mode
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.client import KubeletSilent
from deviceplugin.kubelet.server import CallRejected, ContainerResponse, Mount

# PreStartContainer has 30 s (devicemanager/endpoint.go), and the kubelet comes again with back-off: waiting a little
# for the watch spares the container a round of that.
_START_WAIT_S: Final = 10.0


class CudaNotStarted(Exception):
    """CUDA does not start on a card of the container, or has not been tried yet."""


# Errors that may resolve in a moment: the watch is behind, the kubelet is busy.
_MAY_HEAL: Final = (NotIdentified, NoAllocation, CheckpointError, KubeletSilent, CudaNotStarted)
_NOT_ISOLATED: Final = "NotIsolated"

# The pod, its containers in question, and the UUIDs of the cards that these have.
OnAssigned: TypeAlias = Callable[[NodePod, Sequence[str], frozenset[str]], None]


class EditsSource(Protocol):
    """How the cards of this node come into a container."""

    def edits(self, uuids: Sequence[str]) -> Edits:
        """For these cards and no other. Raises spec.CdiError."""
        ...

    def device_nodes(self, uuids: Sequence[str]) -> Mapping[str, str]:
        """Path in a container -> path on the host, of the nodes of these cards and the control nodes.

        Empty where the nodes of the host are not seen.
        """
        ...


class Isolation(Protocol):
    """Port: holds a container to its part of its cards."""

    def objection(self, share: ContainerShare) -> str:
        """Why the container can never be held to it; "" when it can."""
        ...

    async def prepare(self, share: ContainerShare) -> str:
        """Called before each start; why the container must not start yet, "" when it may. Raises OSError."""
        ...

    def additions(self, share: ContainerShare) -> Additions:
        """Additions that the container gets alongside its cards."""
        ...


class NoIsolation:
    """`Isolation` without limits."""

    def objection(self, _: ContainerShare) -> str:
        return ""

    async def prepare(self, _: ContainerShare) -> str:
        return ""

    def additions(self, _: ContainerShare) -> Additions:
        return Additions()


@dataclass(slots=True, kw_only=True)
class AllocationContext:
    """Ports and settings of both modes. cards: as announced now, whole. on_assigned: called with assigned cards.

    files, card_edits: CDI specs and device edits; either mode may have some.
    volume_mounts: the NVIDIA runtime is asked for cards by mounts too.
    start_problem: why CUDA does not start on these cards, by UUID; "" where it does, or where that is unknown.
    start_wait_s: how long a PreStartContainer waits for what it lacks.
    """

    view: NodeRecords
    cards: Callable[[], Sequence[Card]]
    unit_mib: int
    node_labels: Callable[[], dict[str, str]]
    on_assigned: OnAssigned
    files: SpecFiles
    card_edits: EditsSource
    isolation: Isolation = field(default_factory=NoIsolation)
    volume_mounts: bool = False
    start_problem: Callable[[Sequence[str]], str] = lambda _: ""
    start_wait_s: float = _START_WAIT_S

    @property
    def pods(self) -> OwnPods:
        """Pods of this node, as the watch shows them."""
        return self.view.pods

    def report_assigned(self, found: PodContainers, shares: Sequence[Share]) -> None:
        """Report that the container, or several that run one at a time, have these cards."""
        self.on_assigned(found.pod, [one.name for one in found.containers], frozenset(one.uuid for one in shares))

    def container_share(self, found: PodContainers) -> ContainerShare:
        """The container's part of its cards. Raises Undecided, NotIdentified, CallRejected (no isolation)."""
        decision = decided(found.pod, self.cards(), self.unit_mib)
        share = ContainerShare(
            found.pod, found.containers[0], identify.common_shares(found, decision), decision.unit_mib
        )
        if objection := self.isolation.objection(share):
            raise CallRejected(f"pod {found.pod}: {objection}", _NOT_ISOLATED)
        return share

    async def starts(self, ids: frozenset[str]) -> None:
        """The container with `ids` is about to start: see that it starts with its cards. Raises CallRejected."""

        async def attempt() -> None:
            view = await self.view.snapshot()
            view = await self.view.confirmed(view, {entry.pod_uid for entry in identify.holders(ids, view)})
            found = identify.starting(ids, view)
            share = self.container_share(found)
            shares = share.shares
            held = [entry for entry in identify.holders(ids, view) if entry.pod_uid == found.pod.uid]
            answers = {entry.container: recorded_answer(entry) for entry in held}
            for container, answer in answers.items():
                self._refuse_other_card(found.pod, container, answer, replay_objection(answer, shares))
            if problem := self.start_problem(share.uuids):
                raise CudaNotStarted(f"pod {found.pod}: {problem}")
            for one in found.containers:
                if lacking := await self.isolation.prepare(replace(share, container=one)):
                    raise CallRejected(f"pod {found.pod}: {lacking}", _NOT_ISOLATED)
            if devices := frozenset[str]().union(*(answer.device_names for answer in answers.values())):
                await asyncio.to_thread(self._write_specs, devices, share)
            self.report_assigned(found, shares)

        try:
            await _within(self.start_wait_s, self.pods, attempt)
        except (spec.CdiError, OSError) as error:
            raise CallRejected(str(error), _kind(error)) from error

    def _write_specs(self, devices: Collection[str], share: ContainerShare) -> None:
        """Write the spec of each device: containers that run one at a time have one each. Blocks on the disk."""
        variables = container_environment(share.shares, by_cdi=True, node_labels=self.node_labels())
        parts = [self.card_edits.edits(share.uuids), self.isolation.additions(share).edits(), Edits(env=variables)]
        for device in sorted(devices):
            self.files.write(device, spec.container_spec(device, parts))

    def answer(self, share: ContainerShare) -> ContainerResponse:
        """Allocate response without CDI: the container's cards, and the additions of isolation.

        The NVIDIA runtime makes the device nodes by itself, and the kubelet does not know: an update of the container's
        cgroup, as by the CPU manager or `systemctl daemon-reload`, would take them away again. So they are in here too.
        """
        variables = container_environment(share.shares, by_cdi=False, node_labels=self.node_labels())
        added = self.isolation.additions(share)
        nodes = self.card_edits.device_nodes(share.uuids)
        mounts = [Mount(mount.container_path, mount.host_path, read_only=mount.read_only) for mount in added.mounts]
        asking = [Mount(f"{VOLUME_MOUNTS}/{uuid}", "/dev/null") for uuid in share.uuids] if self.volume_mounts else []
        return ContainerResponse(
            {**added.env, **variables},
            (*mounts, *asking),
            device_nodes={**nodes, **{path: path for path in added.device_nodes}},
        )

    def _refuse_other_card(self, pod: NodePod, container: str, answer: RecordedAnswer, objection: str) -> None:
        if not objection:
            return
        # The kubelet replays its record, so the container has these cards, whatever was decided.
        has = frozenset(filter(None, answer.variables.get(environment.CARD_UUIDS, "").split(",")))
        self.on_assigned(pod, [container], has)
        raise CallRejected(f"pod {pod}: container {container} must not start: {objection}", "OtherCard")


@dataclass(slots=True)
class CdiAllocator:
    """`session.Answers` for runtimes that know the Container Device Interface."""

    context: AllocationContext

    async def registering(self) -> None:
        """Nothing to look up: a container's cards are read when it starts."""

    async def allocate(self, _: frozenset[str]) -> ContainerResponse:
        """A new CDI device name, without a lookup that could fail the pod."""
        return ContainerResponse(cdi_devices=(spec.qualified(secrets.token_hex(spec.NAME_BYTES)),))

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Write the CDI spec of the container that starts, where it was allocated by CDI."""
        await self.context.starts(ids)


@dataclass(slots=True)
class EnvironmentAllocator:
    """`session.Answers` for other runtimes. answered: (pod UID, container), since the last registration.

    Entries of deleted pods are dropped. runtime_class: the `runtimeClassName` by which the NVIDIA runtime runs the
    plugin's own pod; "" if that is the node's default, or unknown.
    """

    context: AllocationContext
    wait_s: float
    runtime_class: Callable[[], str] = str
    answered: set[tuple[str, str]] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)

    async def registering(self) -> None:
        """Take note, before registering, of the pods that the kubelet has admitted without asking us.

        Raises KubeletSilent, CheckpointError: then it is not known, and registering would be too early.
        """
        while not self.context.pods.complete:
            await self.context.pods.change()
        view = await self.context.view.snapshot()
        view = await self.context.view.confirmed(view, {found.pod.uid for found in identify.unrecorded(view)})
        self.passed = {uid for uid, shown in view.shown.items() if shown is not None}
        self.answered.clear()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """The environment of the one container that can be asking."""
        answers: list[ContainerResponse] = []

        async def attempt() -> None:
            view = await self.context.view.snapshot()
            waiting = identify.unrecorded(view, self.answered)
            # The kubelet answers 100 questions a second: those that ask another amount are out without one.
            like = {found.pod.uid for found in waiting if found.containers[0].units == len(ids)}
            view = await self.context.view.confirmed(view, like)
            found = identify.allocating(len(ids), view, answered=self.answered, passed=self.passed)
            share = self.context.container_share(found)
            self._refuse_other_runtime(found.pod)
            live = {pod.uid for pod in view.pods}
            self.answered = {one for one in self.answered if one[0] in live}
            self.answered.update((found.pod.uid, container.name) for container in found.containers)
            answers.append(self.context.answer(share))
            self.context.report_assigned(found, share.shares)

        await _within(self.wait_s, self.context.pods, attempt)
        return answers[0]

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Check that what was answered at Allocate is what was decided: the kubelet replays it forever."""
        await self.context.starts(ids)

    def _refuse_other_runtime(self, pod: NodePod) -> None:
        own = self.runtime_class()
        if own and pod.runtime_class != own:
            message = (
                f"pod {pod}: it would start without a card: the NVIDIA runtime is not this node's default; "
                f"add runtimeClassName: {own}"
            )
            raise CallRejected(message, "OtherRuntime")


def _kind(error: Exception) -> str:
    return "OSError" if isinstance(error, OSError) else type(error).__name__


@dataclass(slots=True)
class ModeAllocator:
    """`session.Answers` of whichever mode holds at the moment of a call; only Allocate and registering differ."""

    cdi: CdiAllocator
    environment: EnvironmentAllocator
    mode: Callable[[], Mode | None]

    async def registering(self) -> None:
        """Look up what the mode needs to know."""
        await self._now().registering()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Answer in the mode of now."""
        return await self._now().allocate(ids)

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Check the recorded answer, of whichever mode it is."""
        await self._now().pre_start(ids)

    def _now(self) -> CdiAllocator | EnvironmentAllocator:
        return self.environment if self.mode() == "environment" else self.cdi


async def _within(wait_s: float, pods: OwnPods, attempt: Callable[[], Awaitable[None]]) -> None:
    """Attempt now and after each change of the node's pods, until it succeeds; CallRejected when the time is over."""
    until_s = time.monotonic() + wait_s
    while True:
        changed = asyncio.ensure_future(pods.change())
        try:
            await attempt()
        except _MAY_HEAL as error:
            left_s = until_s - time.monotonic()
            done, _ = await asyncio.wait({changed}, timeout=max(0.0, left_s))
            # On a busy node something has changed during every attempt.
            if not done or left_s <= 0:
                raise CallRejected(str(error), _kind(error)) from error
        except Undecided as error:
            raise CallRejected(str(error), _kind(error)) from error
        else:
            return
        finally:
            changed.cancel()
