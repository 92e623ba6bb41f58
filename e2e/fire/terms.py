"""Who held the Lease when a pod was bound, and who had sent that Binding: never two replicas in turn.

    requests, as each replica's proxy saw them ──▶ Sent ──┐
    Lease and pods, in the order of the store ──▶ Terms ──┴──▶ faults

Must never be, whatever becomes of requests and of the Lease:
- a pod is bound by a request of a replica that has never held the Lease, or of nobody;
- a request of one replica takes effect after one of a later leader has, or after that one has written over its Lease.

A process is known by the identity that it writes into the Lease; one that is started again has another. Pure.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from e2e.fire import reading
from e2e.fire.proxy import Passing
from e2e.fire.reading import Json

_PODS_SEEN: Final = "gpushare/pods-seen"
_NO_IDENTITY: Final = "a process that has not written the Lease"


@dataclass(slots=True)
class Sent:
    """identities: by replica, of the process that runs. bindings: by pod uid and decision, whose requests they were."""

    identities: dict[str, str] = field(default_factory=dict)
    everybody: set[str] = field(default_factory=set)
    bindings: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def note(self, replica: str, passing: Passing) -> None:
        """This replica has sent this request."""
        if passing.is_binding:
            self.bindings[_decision(json.loads(passing.body))].add(self.identities.get(replica, _NO_IDENTITY))
        # Who gives it up leaves it without a holder.
        elif passing.is_lease and (holder := json.loads(passing.body)["spec"].get("holderIdentity")):
            self.identities[replica] = holder
            self.everybody.add(holder)

    def replica_of(self, identity: str) -> str:
        """The replica whose process has this identity now; "" when none has."""
        return next((replica for replica, current in self.identities.items() if current == identity), "")


@dataclass(frozen=True, slots=True)
class _Lease:
    """holder: "" for nobody, and when it is gone. given_up: in good order."""

    holder: str
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Bound:
    """decision: as in Sent."""

    name: str
    decision: tuple[str, str]


@dataclass(slots=True)
class Terms:
    """What has happened, in order. holder: of the Lease at present, "" for nobody."""

    holder: str = ""
    _happened: list[tuple[int, _Lease | _Bound]] = field(default_factory=list)

    def lease(self, revision: int, found: Json | None) -> None:
        """The Lease is like this; None: gone."""
        spec = {} if found is None else found.get("spec", {})
        self.holder = spec.get("holderIdentity") or ""
        given_up = found is not None and not self.holder and _PODS_SEEN in reading.annotations(found)
        self._happened.append((revision, _Lease(self.holder, given_up)))

    def bound(self, revision: int, pod: Json) -> None:
        """The pod has got its node."""
        if reading.is_ours(pod):
            self._happened.append((revision, _Bound(pod["metadata"]["name"], _decision(pod))))

    def faults(self, sent: Sent) -> list[str]:
        """What must never be, a line each."""
        judged = _Judged()
        for revision, one in self._happened:
            if isinstance(one, _Lease):
                judged.lease(one, sent)
            elif wrong := judged.bound(sent.bindings.get(one.decision, set())):
                judged.faults.append(f"at {revision}: {one.name} is bound by {wrong}")
        return judged.faults

    def leaders(self, sent: Sent) -> list[str]:
        """Who bound pods, one after the other."""
        found: list[str] = []
        for _, one in self._happened:
            if isinstance(one, _Bound):
                found += sorted(sent.bindings.get(one.decision, set()) - set(found[-1:]))
        return found


@dataclass(slots=True)
class _Judged:
    """held: who has held the Lease. over: whose requests must not take effect any more, and why."""

    before: _Lease = _Lease("")
    last_holder: str = ""
    last: str = ""
    held: set[str] = field(default_factory=set)
    over: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def lease(self, found: _Lease, sent: Sent) -> None:
        before, self.before = self.before, found
        if found.given_up:
            self.over[self.last_holder] = "gave the Lease up before"
        if found.holder not in sent.everybody:
            return  # gone, or edited: its holder may go on until it knows
        if before.holder in sent.everybody - {found.holder}:
            self.over[before.holder] = f"lost the Lease to {found.holder} before"
        self.held.add(found.holder)
        self.last_holder = found.holder

    def bound(self, senders: set[str]) -> str:
        """What is wrong with it, "" for nothing."""
        if len(senders) != 1:
            return f"requests of {sorted(senders) or 'nobody'}"
        (sender,) = senders
        if sender not in self.held:
            return f"{sender}, which has never held the Lease"
        if self.last not in {"", sender}:
            self.over.setdefault(self.last, f"was replaced before by {sender}, which has bound a pod")
        self.last = sender
        return f"{sender}, which {self.over[sender]}" if sender in self.over else ""


def _decision(of: Json) -> tuple[str, str]:
    """Of a pod that has its node, or of a Binding: each attempt to place a pod has its own moment."""
    return of["metadata"]["uid"], reading.annotations(of).get(reading.MEM_ASSUME_TIME, "")
