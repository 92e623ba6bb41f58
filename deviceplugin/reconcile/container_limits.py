"""The driver's memory limits of containers, and their use, which it counts against the limit. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.driver.cards import MemoryLimits
from deviceplugin.reconcile.cgroups import Owner
from deviceplugin.reconcile.drift import Drift, DriftKind, SeenPod, Use

# The driver may round a limit up to a multiple of its pages, of which the largest have 2 MiB.
_ROUNDED_MIB: Final = 2


@dataclass(frozen=True, slots=True)
class LimitReading:
    """Limits by card UUID, of each card that answered. The pod UIDs are the API server's.

    limits: of each container that has some. running: containers whose cgroup still existed after the answer.
    """

    limits: Mapping[str, Mapping[Owner, MemoryLimits]] = field(default_factory=dict)
    running: Mapping[str, frozenset[Owner]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def not_enforced(
    seen: Iterable[SeenPod],
    reading: LimitReading,
    by_id: Mapping[str, str],
    expected: Callable[[ContainerShare], DriverLimit | None],
) -> Iterator[Drift]:
    """Yield running containers that the driver lets use more than expected. by_id: from `usage.containers_by_id`.

    A limit lower than expected protects other pods just as well.
    """
    running = _by_container(reading, by_id)
    for one in seen:
        for share in _shares(one):
            wanted = expected(share)
            for uuid in share.uuids if wanted else ():
                for owner in running.get((uuid, one.pod.uid, share.container.name), ()):
                    limits = reading.limits[uuid].get(owner)
                    hard_mib = limits.hard_mib if limits else None
                    if wanted and (hard_mib is None or hard_mib > wanted.hard_mib + _ROUNDED_MIB):
                        yield _not_enforced(share, uuid, wanted.hard_mib, hard_mib)


def _by_container(reading: LimitReading, by_id: Mapping[str, str]) -> dict[tuple[str, str, str], list[Owner]]:
    """Return (card UUID, pod UID, container) -> its cgroups. A pod may have thousands of containers."""
    found: dict[tuple[str, str, str], list[Owner]] = defaultdict(list)
    for uuid, owners in reading.running.items():
        for owner in owners:
            if name := by_id.get(owner.container_id):
                found[uuid, owner.pod_uid, name].append(owner)
    return found


def _not_enforced(share: ContainerShare, uuid: str, wanted_mib: int, hard_mib: int | None) -> Drift:
    name, enforced = share.container.name, "no limit" if hard_mib is None else f"a limit of {hard_mib} MiB"
    message = (
        f"pod {share.pod}: container {name} may use {wanted_mib} MiB of {uuid}; the driver enforces {enforced} there"
    )
    return Drift(kind=DriftKind.NOT_ENFORCED, message=message, pod=share.pod, container=name, uuid=uuid)


def with_limits(traced: Iterable[Use], reading: LimitReading) -> tuple[Use, ...]:
    """Return the use of each container with limits as the driver counts it, and of others as traced by process."""
    exact = (
        Use(uuid, 0, limits.used_mib, owner.pod_uid, owner.container_id, exact=True)
        for uuid, of_card in sorted(reading.limits.items())
        for owner, limits in of_card.items()
    )
    by_process = (use for use in traced if Owner(use.pod_uid, use.container_id) not in reading.limits.get(use.uuid, ()))
    return (*by_process, *exact)


def pods_on(seen: Iterable[SeenPod], uuids: Collection[str]) -> dict[str, set[str]]:
    """Return card UUID -> UIDs of the pods with a container on it, for these cards."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in seen:
        for share in _shares(one):
            for uuid in share.uuids:
                if uuid in uuids:
                    found[uuid].add(one.pod.uid)
    return found


def _shares(one: SeenPod) -> Iterator[ContainerShare]:
    if one.decision is not None:
        for container in one.pod.asking():
            yield ContainerShare(one.pod, container, one.decision.shares[container.name], one.decision.unit_mib)
