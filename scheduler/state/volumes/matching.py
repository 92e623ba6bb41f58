"""Which nodes can give the claims of a pod their volumes, all nodes at once.

    claims with a node ─┐
    claims ── volumes? ─┴─ none left ─▶ can one be made there? is there room for it?

Source: kube-scheduler, plugins/volumebinding/binder.go: FindPodVolumes, findMatchingVolumes, checkVolumeProvisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.columns.node_terms import LabelledRows
from scheduler.state.columns.row_masks import count_of, mask_of
from scheduler.state.volumes.claim import Wants
from scheduler.state.volumes.standing import Delayed
from scheduler.state.volumes.storage_class import FreeVolumes
from scheduler.state.volumes.volumes import Volumes


@dataclass(slots=True)
class Found:
    """satisfied: bool[rows], every claim gets a volume there, as far as that is not for lack of room.

    enough: bool[rows], there is room for what is to be made. volumes: for each claim, smallest first, its volume's name
    on the first of the rows, "" where one is to be made.
    """

    satisfied: BoolArray
    enough: BoolArray
    volumes: tuple[tuple[ClaimKey, str], ...]


def find(volumes: Volumes, claims: Sequence[Delayed], nodes: LabelledRows, rows: Rows) -> Found:
    """claims: of one pod."""
    count = count_of(rows, nodes.capacity)
    begun = [one for one in claims if one.selected]
    elsewhere = np.zeros(count, dtype=np.bool_)
    for claim in begun:
        row = nodes.row_of.get(claim.selected)
        elsewhere |= ~mask_of(() if row is None else (row,), rows, nodes.capacity)
    provision = _Provision(volumes, nodes, rows, alive=~elsewhere)
    for claim in begun:
        provision.need(claim, np.ones(count, dtype=np.bool_))
    chosen: dict[str, list[Int64Array]] = {}
    names = [(claim.key, "") for claim in begun]
    for claim in sorted((one for one in claims if not one.selected), key=lambda one: one.claim.wants.size):
        of_class = volumes.of_class(claim.claim.wants.class_name)
        if of_class is None:
            continue
        if claim.kept:
            matched = _kept(volumes, claim, nodes, rows, count)
            name = claim.kept if count and matched[0] else ""
        else:
            slots = _smallest(
                of_class.free, claim.claim.wants, chosen.setdefault(claim.claim.wants.class_name, []), nodes, rows
            )
            matched = slots >= 0
            name = of_class.free.name(int(slots[0])) if count and matched[0] else ""
        names.append((claim.key, name))
        if not matched.all():
            provision.need(claim, ~matched)
    return Found(provision.satisfied & ~elsewhere, provision.enough, tuple(names))


def _kept(volumes: Volumes, claim: Delayed, nodes: LabelledRows, rows: Rows, count: int) -> BoolArray:
    """bool[rows]: the volume that is kept for the claim can be used there. No other one will do."""
    volume = volumes.volume(claim.kept)
    reach = None if volume is None else volumes.reach(volume)
    return np.ones(count, dtype=np.bool_) if reach is None else reach.over(nodes, rows)


def _smallest(free: FreeVolumes, wants: Wants, chosen: list[Int64Array], nodes: LabelledRows, rows: Rows) -> Int64Array:
    """int64[rows]: the smallest free volume that does it and is not `chosen` for another claim; -1 for none."""
    picked: Int64Array = np.full(count_of(rows, nodes.capacity), -1, dtype=np.int64)
    candidates = free.candidates(wants)
    if candidates is None:
        return picked
    # So many that one is left whatever the claims before have got.
    for slots in free.reachable.first(candidates, len(chosen) + 1, nodes, rows)[::-1]:
        left = slots >= 0
        for others in chosen:
            left &= slots != others
        picked = np.where(left, slots, picked)
    chosen.append(picked)
    return picked


class _Provision:
    """Whether volumes can be made. The first claim for which one cannot says why."""

    def __init__(self, volumes: Volumes, nodes: LabelledRows, rows: Rows, *, alive: BoolArray) -> None:
        self._volumes = volumes
        self._nodes = nodes
        self._rows = rows
        self._alive = alive
        self.satisfied = np.ones_like(alive)
        self.enough = np.ones_like(alive)

    def need(self, claim: Delayed, on: BoolArray) -> None:
        """On these rows one is to be made for the claim."""
        active = on & self._alive
        wants = claim.claim.wants
        of_class = self._volumes.of_class(wants.class_name)
        if of_class is None or of_class.known is None or not active.any():
            return
        can = np.zeros_like(active)
        if of_class.known.provisions:
            reach = of_class.known.reach()
            can = np.ones_like(active) if reach is None else reach.over(self._nodes, self._rows)
        self.satisfied &= ~(active & ~can)
        active &= can
        self._alive &= ~on | can
        if claim.claim.has_size and self._volumes.tells_capacity(of_class.known.provisioner):
            capacities = of_class.capacities
            enough = capacities.at_least(wants.size)
            room = capacities.reachable.first(enough, 1, self._nodes, self._rows)[0] >= 0
            self.enough &= ~(active & ~room)
            self._alive &= ~active | room
