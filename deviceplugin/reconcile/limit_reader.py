"""Reads the driver's memory limits of the node's containers.

    seen pods ─▶ their cgroups on the host ─▶ driver, card by card ─▶ `container_limits`

It needs no process IDs, and so no access to the host's PID namespace.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.driver.cards import MemoryLimits, SourceFailed
from deviceplugin.health.states import CardStates
from deviceplugin.reconcile.cgroup_files import container_cgroups, existing
from deviceplugin.reconcile.cgroups import Owner
from deviceplugin.reconcile.container_limits import LimitReading, pods_on
from deviceplugin.reconcile.drift import SeenPod


class _LimitSource(Protocol):
    """Port: the part of `driver.cards.Driver` that reads memory limits."""

    async def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> Mapping[str, MemoryLimits]:
        """Return the limits on the card by cgroup. Raises SourceFailed."""
        ...


class _EnforcedLimits(Protocol):
    """Port: the part of `isolation.node_isolation.NodeIsolation` that knows the limits to enforce."""

    def limit(self, share: ContainerShare) -> DriverLimit | None:
        """Return the limits that the driver has to enforce for the container; None if it has none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReader:
    """Reads the limits. host_cgroup: the host's cgroup v2 tree."""

    host_cgroup: Path
    states: CardStates
    driver: _LimitSource
    isolation: _EnforcedLimits

    async def read(self, seen: Iterable[SeenPod], uids: Mapping[str, str]) -> LimitReading:
        """Return the limits of the pods' containers on their cards. uids: as from `usage.uids_by_cgroup`."""
        on_cards = pods_on(seen, {card.uuid for card in self.states.cards if card.limits})
        if not on_cards:
            return LimitReading()
        try:
            cgroups = await asyncio.to_thread(container_cgroups, self.host_cgroup)
        except OSError as error:
            return LimitReading(problems=(f"cannot find the cgroups of containers: {error}",))
        if not cgroups:
            # The plugin's own container has one.
            message = f"no container's cgroup found in {self.host_cgroup} (hostCgroup): memory limits are not checked"
            return LimitReading(problems=(message,))
        paths = {Owner(uids.get(one.pod_uid, one.pod_uid), one.container_id): path for one, path in cgroups.items()}
        of_cards = {
            uuid: {one: path for one, path in paths.items() if one.pod_uid in pods} for uuid, pods in on_cards.items()
        }
        answers = await asyncio.gather(*(self._of_card(uuid, of_card) for uuid, of_card in of_cards.items()))
        found = dict(zip(of_cards, answers, strict=True))
        # A cgroup that went away meanwhile had no limits to report, and needs none.
        left = await asyncio.to_thread(existing, {path for of_card in of_cards.values() for path in of_card.values()})
        limits = {uuid: answer for uuid, answer in found.items() if not isinstance(answer, SourceFailed)}
        return LimitReading(
            limits,
            {uuid: frozenset(one for one, path in of_cards[uuid].items() if path in left) for uuid in limits},
            tuple(f"memory limits: {answer}" for answer in answers if isinstance(answer, SourceFailed)),
        )

    async def _of_card(self, uuid: str, paths: Mapping[Owner, str]) -> dict[Owner, MemoryLimits] | SourceFailed:
        try:
            found = await self.driver.memory_limits(uuid, tuple(paths.values()))
        except SourceFailed as error:
            return error
        return {owner: found[path] for owner, path in paths.items() if path in found}
