"""Allocate and PreStartContainer: gives each container exactly the cards that the scheduler chose for it.

    cdi:          Allocate returns a device name ──────────────────────────────┐
    environment:  Allocate finds the container, returns its environment ───────┤
                                                                               ▼
    PreStartContainer finds the container, checks the answer that the kubelet recorded (of either mode),
    prepares its isolation, and writes the CDI spec if the answer is a device name

Neither mode guesses: an ambiguous call is rejected, with a message that appears in the pod's events.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from config.protocol import environment
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
from deviceplugin.cdi import limit_hooks, spec
from deviceplugin.cdi.edits import Additions, Edits
from deviceplugin.cdi.mode import VOLUME_MOUNTS, Injection
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.client import KubeletSilent
from deviceplugin.kubelet.server import CallRejected, ContainerResponse, Mount
from deviceplugin.kubelet.session import FakeDevices

# PreStartContainer has 30 s (devicemanager/endpoint.go), and the kubelet retries with back-off: a short wait for the
# watch saves the container one retry.
_START_WAIT_S: Final = 10.0


class CudaNotStarted(Exception):
    """CUDA does not start on one of the container's cards, or has not been tried there yet."""


# Errors that may clear up in a moment: the watch is behind, or the kubelet is busy.
_MAY_HEAL: Final = (NotIdentified, NoAllocation, CheckpointError, KubeletSilent, CudaNotStarted)
_NOT_ISOLATED: Final = "NotIsolated"

# Called with the pod, the affected containers, and the UUIDs of their cards.
OnAssigned: TypeAlias = Callable[[NodePod, Sequence[str], frozenset[str]], None]


class EditsSource(Protocol):
    """Source of the device edits that inject this node's cards into a container.

    limits_by_hook: the driver limits a container's memory only if the edits of each of its cards contain NVIDIA's hook.
    """

    @property
    def limits_by_hook(self) -> bool: ...

    def edits(self, uuids: Sequence[str]) -> Edits:
        """Return the edits for exactly these cards. Raises spec.CdiError."""
        ...

    def device_nodes(self, uuids: Sequence[str]) -> Mapping[str, str]:
        """Return path in a container -> path on the host, for the device nodes of these cards and the control nodes.

        Empty if the host's device nodes are not visible.
        """
        ...


class Isolation(Protocol):
    """Port: limits a container to its part of its cards."""

    def objection(self, share: ContainerShare) -> str:
        """Return why the container can never be limited to its part; "" if it can."""
        ...

    async def prepare(self, share: ContainerShare) -> str:
        """Prepare one start of the container. Return why it must not start yet; "" if it may. Raises OSError."""
        ...

    def additions(self, share: ContainerShare) -> Additions:
        """Return what the container gets in addition to its cards."""
        ...


class _NoIsolation:
    """`Isolation` without limits."""

    def objection(self, _: ContainerShare) -> str:
        return ""

    async def prepare(self, _: ContainerShare) -> str:
        return ""

    def additions(self, _: ContainerShare) -> Additions:
        return Additions()


@dataclass(slots=True, kw_only=True)
class AllocationContext:
    """Ports and settings of both modes. on_assigned: called with assigned cards.

    files, card_edits: CDI specs and device edits; either mode may use them. volume_mounts: containers may also request
    cards from the NVIDIA runtime by mounts. start_problem: returns why CUDA does not start on the cards with these
    UUIDs; "" if it does or this is unknown. devices: the list for the kubelet, which gets it again if a container
    starts that the kubelet's checkpoint lacks. start_wait_s: how long a PreStartContainer waits for missing facts.
    """

    view: NodeRecords
    node_labels: Callable[[], dict[str, str]]
    on_assigned: OnAssigned
    files: SpecFiles
    card_edits: EditsSource
    start_problem: Callable[[Sequence[str]], str]
    devices: FakeDevices
    isolation: Isolation = field(default_factory=_NoIsolation)
    volume_mounts: bool = False
    start_wait_s: float = _START_WAIT_S

    @property
    def pods(self) -> OwnPods:
        """This node's pods, as the watch shows them."""
        return self.view.pods

    def report_assigned(self, found: PodContainers, shares: Sequence[Share]) -> None:
        """Report that the container has these cards; `found` may be several containers that run one at a time."""
        self.on_assigned(found.pod, [one.name for one in found.containers], frozenset(one.uuid for one in shares))

    def container_share(self, found: PodContainers) -> ContainerShare:
        """Return the container's part of its cards. Raises Undecided, NotIdentified, CallRejected (not isolated)."""
        decision = decided(found.pod, self.view.cards, self.view.unit_mib)
        share = ContainerShare(
            found.pod, found.containers[0], identify.common_shares(found, decision), decision.unit_mib
        )
        if objection := self.isolation.objection(share):
            raise CallRejected(f"pod {found.pod}: {objection}", _NOT_ISOLATED)
        return share

    async def starts(self, ids: frozenset[str]) -> None:
        """Ensure that the container with `ids`, which is about to start, gets its cards. Raises CallRejected."""

        async def attempt() -> None:
            view = await self.view.snapshot()
            if not (holders := identify.holders(ids, view)):
                # The kubelet takes what it writes under a lock and writes it without one: an older state may have
                # replaced a newer one. Source: devicemanager/manager.go, writeCheckpoint.
                self.devices.again()
            view = await self.view.confirmed(view, {entry.pod_uid for entry in holders})
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
            added = {one.name: self.isolation.additions(replace(share, container=one)) for one in found.containers}
            await asyncio.to_thread(self._write_specs, answers, share, added)
            self.report_assigned(found, shares)

        try:
            await _within(self.start_wait_s, self.pods, attempt)
        except (spec.CdiError, OSError) as error:
            raise CallRejected(str(error), _kind(error)) from error

    def _write_specs(
        self, answers: Mapping[str, RecordedAnswer], share: ContainerShare, added: Mapping[str, Additions]
    ) -> None:
        """Write the spec of each container that has a device of ours. Blocks on the disk.

        answers, added: by name, of the found containers, which run one at a time.
        """
        variables = container_environment(share.shares, by_cdi=True, node_labels=self.node_labels())
        for name, additions in added.items():
            for device in sorted(answers[name].device_names):
                parts = [self._edits_of_cards(share, additions), additions.edits(), Edits(env=variables)]
                self.files.write(device, spec.container_spec(device, parts))

    def _edits_of_cards(self, share: ContainerShare, added: Additions) -> Edits:
        """Return the edits of its cards, with NVIDIA's hook only if the container has limits. Raises CdiError."""
        edits = self.card_edits.edits(share.uuids)
        if environment.GPU_MEMORY_LIMIT not in added.env:
            return limit_hooks.without(edits)
        bare = sorted(set(share.uuids) - limit_hooks.limited(edits)) if self.card_edits.limits_by_hook else []
        if bare:
            # The spec was replaced a moment ago; the cards' isolation follows soon.
            raise spec.CdiError(f"card {', '.join(bare)}: its CDI spec no longer has the hook {limit_hooks.NAME}")
        return edits

    def answer(self, share: ContainerShare) -> ContainerResponse:
        """Return the Allocate response without CDI: the container's cards and the additions of isolation.

        It lists the device nodes, although the NVIDIA runtime creates them: the kubelet does not know about those. An
        update of the container's cgroup (by the CPU manager or `systemctl daemon-reload`) would revoke access to them.
        """
        variables = container_environment(share.shares, by_cdi=False, node_labels=self.node_labels())
        added = self.isolation.additions(share)
        nodes = self.card_edits.device_nodes(share.uuids)
        mounts = [Mount(mount.container_path, mount.host_path, read_only=mount.read_only) for mount in added.mounts]
        asking = [_asked_by_mount(uuid) for uuid in share.uuids] if self.volume_mounts else []
        return ContainerResponse(
            {**added.env, **variables},
            (*mounts, *asking),
            device_nodes={**nodes, **{path: path for path in added.device_nodes}},
        )

    def _refuse_other_card(self, pod: NodePod, container: str, answer: RecordedAnswer, objection: str) -> None:
        if not objection:
            return
        # The kubelet replays its record, so the container has these cards, whatever the decision says.
        has = frozenset(filter(None, answer.variables.get(environment.CARD_UUIDS, "").split(",")))
        self.on_assigned(pod, [container], has)
        raise CallRejected(f"pod {pod}: container {container} must not start: {objection}", "OtherCard")


@dataclass(slots=True)
class CdiAllocator:
    """`session.Answers` for runtimes that support the Container Device Interface."""

    context: AllocationContext

    async def registering(self) -> None:
        """Do nothing: a container's cards are looked up when it starts."""

    async def allocate(self, _: frozenset[str]) -> ContainerResponse:
        """Return a new CDI device name, without a lookup that could fail the pod."""
        return ContainerResponse(cdi_devices=(spec.qualified(secrets.token_hex(spec.NAME_BYTES)),))

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Write the CDI spec of the container that starts, if it was allocated through CDI."""
        await self.context.starts(ids)


@dataclass(slots=True)
class EnvironmentAllocator:
    """`session.Answers` for other runtimes. answered: (pod UID, container) allocated since the last registration.

    Entries of deleted pods are dropped. own_uid: the UID of the plugin's own pod, whose `runtimeClassName` makes the
    NVIDIA runtime run it, unless that runtime is the node's default; "" if it is unknown.
    """

    context: AllocationContext
    wait_s: float
    own_uid: str = ""
    answered: set[tuple[str, str]] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)

    async def registering(self) -> None:
        """Record, before registering, the pods that the kubelet admitted without calling the plugin.

        Raises KubeletSilent or CheckpointError if they cannot be determined; registering would then be too early.
        """
        while not self.context.pods.complete:
            await self.context.pods.change()
        view = await self.context.view.snapshot()
        view = await self.context.view.confirmed(view, {found.pod.uid for found in identify.unrecorded(view)})
        self.passed = {uid for uid, shown in view.shown.items() if shown is not None}
        self.answered.clear()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Return the environment of the only container that can be the caller."""
        answers: list[ContainerResponse] = []

        async def attempt() -> None:
            view = await self.context.view.snapshot()
            waiting = identify.unrecorded(view, self.answered)
            # The kubelet answers 100 queries a second: pods that request another amount are ruled out without a query.
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
        """Check that the answer given at Allocate matches the decision: the kubelet replays it at every start."""
        await self.context.starts(ids)

    def _refuse_other_runtime(self, pod: NodePod) -> None:
        own = self.context.pods.runtime_class(self.own_uid)
        if own and pod.runtime_class != own:
            message = (
                f"pod {pod}: it would start without a card: the NVIDIA runtime is not this node's default; "
                f"add runtimeClassName: {own}"
            )
            raise CallRejected(message, "OtherRuntime")


def _asked_by_mount(uuid: str) -> Mount:
    """Return the mount that requests the card from the NVIDIA runtime, which ignores deeper paths."""
    if "/" in uuid:
        raise CallRejected(f"card {uuid} cannot be requested by a mount; expected a driver from 470 on", "OtherRuntime")
    return Mount(f"{VOLUME_MOUNTS}/{uuid}", "/dev/null")


def _kind(error: Exception) -> str:
    return "OSError" if isinstance(error, OSError) else type(error).__name__


@dataclass(slots=True)
class ModeAllocator:
    """`session.Answers` that follows the current mode. Only Allocate and registering depend on the mode."""

    cdi: CdiAllocator
    environment: EnvironmentAllocator
    injection: Injection

    async def registering(self) -> None:
        """Look up what the mode needs before registering."""
        await self._now().registering()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Answer in the current mode."""
        return await self._now().allocate(ids)

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Check the answer recorded at Allocate, whichever mode gave it."""
        await self._now().pre_start(ids)

    def _now(self) -> CdiAllocator | EnvironmentAllocator:
        return self.environment if self.injection.chosen == "environment" else self.cdi


async def _within(wait_s: float, pods: OwnPods, attempt: Callable[[], Awaitable[None]]) -> None:
    """Attempt now and after each change of the node's pods until it succeeds. Raises CallRejected after `wait_s`."""
    until_s = time.monotonic() + wait_s
    while True:
        changed = asyncio.ensure_future(pods.change())
        try:
            await attempt()
        except _MAY_HEAL as error:
            left_s = until_s - time.monotonic()
            done, _ = await asyncio.wait({changed}, timeout=max(0.0, left_s))
            # On a busy node, something changes during every attempt.
            if not done or left_s <= 0:
                raise CallRejected(str(error), _kind(error)) from error
        except Undecided as error:
            raise CallRejected(str(error), _kind(error)) from error
        else:
            return
        finally:
            changed.cancel()
