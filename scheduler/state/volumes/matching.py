"""Nodes that can provide the volumes of a pod's claims, all nodes at once.

    claims with a node ─┐
    claims ── volumes? ─┴─ none left ─▶ can one be made there? is there room for it?

Source: kube-scheduler, plugins/volumebinding/binder.go: FindPodVolumes, findMatchingVolumes, checkVolumeProvisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.columns.node_terms import LabelledRows
from scheduler.state.columns.row_masks import count_of, mask_of
from scheduler.state.volumes.claim import Wants
from scheduler.state.volumes.claim_state import Delayed
from scheduler.state.volumes.storage_class import FreeVolumes
from scheduler.state.volumes.volumes import Volumes

if TYPE_CHECKING:
    from scheduler.state.volumes.reachable import Choice

# With more claims, grouping equal rows pays off.
_FEW_CLAIMS: Final = 4


@dataclass(slots=True)
class MatchResult:
    """satisfied: bool[rows], every claim gets a volume there, not counting missing capacity.

    enough: bool[rows], capacity for the volumes to create. volumes: for each claim, smallest first, its volume's name
    on the first of the rows, "" for a volume to be created.
    """

    satisfied: BoolArray
    enough: BoolArray
    volumes: tuple[tuple[ClaimKey, str], ...]


def find(volumes: Volumes, claims: Sequence[Delayed], nodes: LabelledRows, rows: Rows) -> MatchResult:
    """claims: of one pod."""
    count = count_of(rows, nodes.capacity)
    begun = [one for one in claims if one.selected]
    elsewhere = np.zeros(count, dtype=np.bool_)
    for selected in {claim.selected for claim in begun}:
        row = nodes.row_of.get(selected)
        elsewhere |= ~mask_of(() if row is None else (row,), rows, nodes.capacity)
    provision = _Provision(volumes, nodes, rows, alive=~elsewhere)
    everywhere = np.ones(count, dtype=np.bool_)
    for claim in begun:
        provision.need(claim, everywhere)
    names = [(claim.key, "") for claim in begun]
    waiting = sorted((one for one in claims if not one.selected), key=lambda one: one.claim.wants.size)
    free: dict[str, _Free] = {}
    for claim in waiting:
        class_name = claim.claim.wants.class_name
        of_class = volumes.of_class(class_name)
        if of_class is None:
            continue
        if claim.kept:
            matched = _kept(volumes, claim, nodes, rows, count)
            name = claim.kept if count and matched[0] else ""
        else:
            if class_name not in free:
                free[class_name] = _Free(of_class.free, nodes, rows, many=len(waiting) > _FEW_CLAIMS)
            matched, name = free[class_name].take(claim.claim.wants)
        names.append((claim.key, name))
        if not matched.all():
            provision.need(claim, ~matched)
    return MatchResult(provision.satisfied & ~elsewhere, provision.enough, tuple(names))


def _kept(volumes: Volumes, claim: Delayed, nodes: LabelledRows, rows: Rows, count: int) -> BoolArray:
    """bool[rows]: the volume that is kept for the claim can be used there. No other one will do."""
    volume = volumes.volume(claim.kept)
    reach = None if volume is None else volumes.reach(volume)
    return np.ones(count, dtype=np.bool_) if reach is None else reach.over(nodes, rows)


class _Free:
    """Free volumes of a class. Claims take them in the order of their sizes, separately on each row."""

    def __init__(self, free: FreeVolumes, nodes: LabelledRows, rows: Rows, *, many: bool) -> None:
        """many: whether there are enough claims to group rows that reach the same volumes."""
        self._free = free
        self._nodes = nodes
        self._rows = rows
        self._near = free.reachable.near(nodes, rows)
        like = free.reachable.like(nodes, rows) if many and len(self._near) else None
        self._places: RowArray | slice = slice(None)
        if like is not None:
            self._rows, self._places = like
        self._count = count_of(self._rows, nodes.capacity)
        # For claims with equal requirements but size, candidates of an earlier one fit: each takes the next.
        self._choices: dict[Wants, Choice] = {}
        self._taken: dict[Wants, list[Int64Array]] = {}

    def take(self, wants: Wants) -> tuple[BoolArray, str]:
        """(rows where the claim gets a volume, its name on the first of them or "")."""
        ranks = self._ranks(wants)
        end = self._free.reachable.end
        matched = (ranks < end)[self._places]
        if not (len(matched) and matched[0]):
            return matched, ""
        return matched, self._free.name(self._free.reachable.slot(int(ranks[self._places][0])))

    def _ranks(self, wants: Wants) -> Int64Array:
        """int64[rows]: rank of the claim's volume, which later claims cannot have."""
        alike, end = wants._replace(size=0), self._free.reachable.end
        mine = self._taken.setdefault(alike, [])
        too_small = self._free.reachable.below(wants.size)
        ranks = np.maximum(mine[-1], too_small) if mine else np.full(self._count, too_small, dtype=np.int64)
        mine.append(ranks)
        left = np.flatnonzero(ranks < end)
        others = [other for kind, of_kind in self._taken.items() if kind != alike for other in of_kind]
        while len(left):
            ranks[left] = found = self._choice(alike).next(ranks[left], left)
            taken = np.zeros(len(left), dtype=np.bool_)
            for other in others:
                taken |= other[left] == found
            left = left[taken & (found < end)]
        return ranks

    def _choice(self, alike: Wants) -> "Choice":
        found = self._choices.get(alike)
        if found is None:
            suiting = self._free.suiting(alike, self._near)
            found = self._choices[alike] = self._free.reachable.choice(suiting, self._nodes, self._rows)
        return found


class _Provision:
    """Whether volumes can be created. The first claim without one gives the reason."""

    def __init__(self, volumes: Volumes, nodes: LabelledRows, rows: Rows, *, alive: BoolArray) -> None:
        self._volumes = volumes
        self._nodes = nodes
        self._rows = rows
        self._alive = alive
        # Already required on all rows: a repeat requires nothing more.
        self._needed: set[tuple[str, int | None]] = set()
        self.satisfied = np.ones_like(alive)
        self.enough = np.ones_like(alive)

    def need(self, claim: Delayed, on: BoolArray) -> None:
        """Require a new volume for the claim on these rows."""
        wants = claim.claim.wants
        asked = (wants.class_name, wants.size if claim.claim.has_size else None)
        if asked in self._needed:
            return
        if on.all():
            self._needed.add(asked)
        active = on & self._alive
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
            room = of_class.capacities.has_room(wants.size, self._nodes, self._rows)
            self.enough &= ~(active & ~room)
            self._alive &= ~active | room
