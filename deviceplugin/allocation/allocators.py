"""Allocate and PreStartContainer: gives each container exactly the cards that the scheduler chose for it.

    cdi:          Allocate answers a device name ──▶ PreStartContainer finds the container, writes the CDI spec
    environment:  Allocate finds the container, answers its environment ──▶ PreStartContainer checks the answer

Neither guesses: what cannot be told is refused, with a message that the pod's events will show.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from config.protocol import environment
from config.protocol.inventory import Card
from deviceplugin.allocation import identify
from deviceplugin.allocation.environment import container_environment, replay_objection
from deviceplugin.allocation.identify import NodeState, NotIdentified, PodContainers
from deviceplugin.allocation.own_pods import OwnPods
from deviceplugin.allocation.pods import NoAllocation, NodePod, Share, Undecided, decided
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi import spec
from deviceplugin.cdi.edits import Edits
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.client import KubeletSilent
from deviceplugin.kubelet.server import ContainerResponse, Refused
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2

# PreStartContainer has 30 s (devicemanager/endpoint.go), and the kubelet comes again with back-off: waiting a little
# for the watch spares the container a round of that.
_START_WAIT_S: Final = 10.0
# What may be right a moment later: the watch is behind, the kubelet is busy.
_MAY_HEAL: Final = (NotIdentified, NoAllocation, CheckpointError, KubeletSilent)

# The pod, its containers in question, and the UUIDs of the cards that these have.
Given: TypeAlias = Callable[[NodePod, Sequence[str], frozenset[str]], None]


class EditsSource(Protocol):
    """How the cards of this node come into a container."""

    def edits(self, uuids: Sequence[str]) -> Edits:
        """For these cards and no other. Raises spec.CdiError."""
        ...


@dataclass(slots=True, kw_only=True)
class Site:
    """What both modes need. cards: as announced now, whole. given: told of every container that gets its cards.

    start_wait_s: how long a PreStartContainer waits for what it lacks.
    """

    view: NodeRecords
    cards: Callable[[], Sequence[Card]]
    node_labels: Callable[[], dict[str, str]]
    given: Given
    start_wait_s: float = _START_WAIT_S

    @property
    def pods(self) -> OwnPods:
        """Of this node, as the watch shows them."""
        return self.view.pods

    def gave(self, found: PodContainers, shares: Sequence[Share]) -> None:
        """Report that the container, or one of them after the other, has these cards."""
        self.given(found.pod, [one.name for one in found.containers], frozenset(share.uuid for share in shares))

    async def recorded(self, ids: frozenset[str]) -> tuple[NodeState, PodContainers, tuple[Share, ...]]:
        """The container that starts with `ids`, and its shares. Raises what `_MAY_HEAL` has, and Undecided."""
        view = await self.view.look()
        view = await self.view.confirmed(view, {entry.pod_uid for entry in identify.holders(ids, view)})
        found = identify.starting(ids, view)
        return view, found, identify.common_shares(found, decided(found.pod, self.cards()))


@dataclass(slots=True)
class CdiAllocator:
    """`session.Answers` for runtimes that know the Container Device Interface."""

    site: Site
    files: SpecFiles
    card_edits: EditsSource

    async def registering(self) -> None:
        """Nothing has to be known before: what a container is given is looked up when it starts."""

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """A CDI device name. Asks nobody, so no pod is ever failed by a lookup."""
        return ContainerResponse(cdi_devices=(spec.qualified(spec.device_name(ids)),))

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Write the CDI spec of the container that starts."""

        async def attempt() -> None:
            _, found, shares = await self.site.recorded(ids)
            variables = container_environment(shares, by_cdi=True, node_labels=self.site.node_labels())
            edits = self.card_edits.edits([share.uuid for share in shares])
            device = spec.device_name(ids)
            wire = spec.container_spec(device, [edits, Edits(env=variables)])
            await asyncio.to_thread(self.files.write, device, wire)
            self.site.gave(found, shares)

        try:
            await _within(self.site.start_wait_s, self.site.pods, attempt)
        except (spec.CdiError, OSError) as error:
            raise Refused(str(error), _kind(error)) from error


@dataclass(slots=True)
class EnvironmentAllocator:
    """`session.Answers` for other runtimes. answered: (pod UID, container), since the last registration.

    Those of pods that are gone are forgotten.
    """

    site: Site
    wait_s: float
    answered: set[tuple[str, str]] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)

    async def registering(self) -> None:
        """Take note, before registering, of the pods that the kubelet has admitted without asking us.

        Raises KubeletSilent, CheckpointError: then it is not known, and registering would be too early.
        """
        while not self.site.pods.complete:
            await self.site.pods.change()
        view = await self.site.view.look()
        view = await self.site.view.confirmed(view, {found.pod.uid for found in identify.unrecorded(view)})
        self.passed = {uid for uid, shown in view.shown.items() if shown is not None}
        self.answered.clear()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """The environment of the one container that can be asking."""
        answers: list[ContainerResponse] = []

        async def attempt() -> None:
            view = await self.site.view.look()
            waiting = identify.unrecorded(view, self.answered)
            # The kubelet answers 100 questions a second: those that ask another amount are out without one.
            like = {found.pod.uid for found in waiting if found.containers[0].units == len(ids)}
            view = await self.site.view.confirmed(view, like)
            found = identify.allocating(len(ids), view, answered=self.answered, passed=self.passed)
            shares = identify.common_shares(found, decided(found.pod, self.site.cards()))
            live = {pod.uid for pod in view.pods}
            self.answered = {one for one in self.answered if one[0] in live}
            self.answered.update((found.pod.uid, container.name) for container in found.containers)
            labels = self.site.node_labels()
            answers.append(ContainerResponse(container_environment(shares, by_cdi=False, node_labels=labels)))
            self.site.gave(found, shares)

        await _within(self.wait_s, self.site.pods, attempt)
        return answers[0]

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Check that what was answered at Allocate is what was decided: the kubelet replays it forever."""

        async def attempt() -> None:
            view, found, shares = await self.site.recorded(ids)
            for entry in identify.holders(ids, view):
                if entry.pod_uid == found.pod.uid:
                    recorded = dict(deviceplugin_pb2.ContainerAllocateResponse.FromString(entry.answer()).envs)
                    objection = replay_objection(recorded, shares)
                    if objection:
                        # What the container has is what the kubelet replays, wherever it should have been.
                        has = frozenset(filter(None, recorded.get(environment.CARD_UUIDS, "").split(",")))
                        self.site.given(found.pod, [entry.container], has)
                        message = f"pod {found.pod}: container {entry.container} must not start: {objection}"
                        raise Refused(message, "OtherCard")
            self.site.gave(found, shares)

        await _within(self.site.start_wait_s, self.site.pods, attempt)


def _kind(error: Exception) -> str:
    return "OSError" if isinstance(error, OSError) else type(error).__name__


async def _within(wait_s: float, pods: OwnPods, attempt: Callable[[], Awaitable[None]]) -> None:
    """Attempt now and after each change of the node's pods, until it succeeds or the time is over; then Refused."""
    until_s = time.monotonic() + wait_s
    while True:
        changed = asyncio.ensure_future(pods.change())
        try:
            await attempt()
        except _MAY_HEAL as error:
            left_s = until_s - time.monotonic()
            done, _ = await asyncio.wait({changed}, timeout=max(0.0, left_s))
            if not done:
                raise Refused(str(error), _kind(error)) from error
        except Undecided as error:
            raise Refused(str(error), _kind(error)) from error
        else:
            return
        finally:
            changed.cancel()
