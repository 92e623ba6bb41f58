"""How many bind requests each namespace may have on the wire, by how its last ones were answered.

    UNTRIED ──an answer──▶ WELL ──silent for 50 ms──▶ LATE ──an answer──▶ WELL
       │                    │                          │
       └────────────────────┴──no definite answer──────┴──▶ FAILING ──an answer──▶ WELL

UNTRIED: it has had no answer that is remembered. One request shows whether it gets one.
WELL:    at most three times as many as are free, so that each namespace leaves something to the next, whatever becomes
         of its answers: alone it has three quarters of the slots, then the next has three quarters of the rest.
LATE:    it has all its slots, more of its pods ask for one, and there has been no answer. Its next pods wait in the
         queue; when an answer comes they are served in order, and nobody is told.
FAILING: a failure, or no answer for a second. After a pause one request at a time; all failing namespaces together
         have a quarter of the slots. Its next pods let others pass, too, and are told why they wait.

Each begins with a window of one request, and with each answer it has one more; after a second without requests, and
after a failure, it begins again. So many namespaces that come at once and hang hold a request each. What is beyond the
window waits in the queue, where pods of others pass it.

Over all namespaces: requests that may be in vain, those of namespaces that are not WELL or are silent at the moment,
leave a quarter of the slots when a LATE or FAILING namespace asks for the next, a sixteenth when an UNTRIED one does.
So a namespace that answers always finds a slot, and a new one soon, however many others hang together.

Decides only; `bind_slots` waits. now_s: monotonic seconds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from math import inf
from typing import Final

from cachetools import LRUCache

from scheduler.kube.port import ApiError, ApiThrottled

# A namespace that has all the slots it may have, and no answer for so long, keeps others from being placed: a server
# that works answers sooner, and one that does not costs nobody anything if it was only late.
_LATE_S: Final = 0.05
# After so long its webhook hangs.
_SILENT_S: Final = 1.0
# A namespace that has sent nothing for so long begins again. Of TCP: RFC 2861, the congestion window after idle time.
_IDLE_S: Final = 1.0
NO_ANSWER: Final = "no answer"
# So that one pod which no server can bind does not stop the others of its namespace.
_FEWEST_PODS_FAILING: Final = 4
_MOST_REMEMBERED: Final = 4096


class Standing(IntEnum):
    """See the module. Numbers: they are counted by, and other members are hashed by their names."""

    UNTRIED = auto()
    WELL = auto()
    LATE = auto()
    FAILING = auto()


@dataclass(slots=True, kw_only=True)
class Sender:
    """A namespace with pods that are being bound, as `SlotShares` knows it.

    on_the_wire: requests. waiting: those that ask for a slot. pods: being bound, with a slot or without.
    window: as many may be on the wire, by the answers that came.
    failures: in a row, without a definite answer; why: the last one's message. closed_until_s: end of the pause.
    heard_s: when the last definite answer came, or the first request after a time without any was sent.
    """

    name: str
    standing: Standing
    on_the_wire: int = 0
    waiting: int = 0
    pods: int = 0
    window: int = 1
    failures: int = 0
    why: str = ""
    closed_until_s: float = 0.0
    heard_s: float = 0.0


class SlotShares:
    """See the module. Owned by the event loop."""

    def __init__(self, most: int) -> None:
        """most: slots, >= 1."""
        self.on_the_wire = 0
        self._most = most
        self._most_failing = max(1, most // 4)
        self._most_in_vain = {
            Standing.UNTRIED: max(1, most - most // 16),
            Standing.LATE: most - most // 4,
            Standing.FAILING: most - most // 4,
        }
        self._senders: dict[str, Sender] = {}
        # With requests on the wire; at most as many as there are slots.
        self._sending: dict[str, Sender] = {}
        self._failing = 0  # namespaces
        self._sent_by: Counter[Standing] = Counter()
        self._waiting_by: Counter[Standing] = Counter()
        # By name: the window, and when the last answer came.
        self._answered: LRUCache[str, tuple[int, float]] = LRUCache(_MOST_REMEMBERED)

    # What there is for whom

    @property
    def free(self) -> int:
        """Slots."""
        return self._most - self.on_the_wire

    @property
    def taken(self) -> int:
        """Requests on the wire, and those that wait for a slot in namespaces that are WELL."""
        return self.on_the_wire + self.waiting(Standing.WELL)

    def waiting(self, standing: Standing) -> int:
        """Requests that wait for a slot in such namespaces."""
        return self._waiting_by[standing]

    def held_back(self, name: str) -> str:
        """Why no more pods of a namespace are to be bound for now; "" when nothing is against it.

        While it fails, few of its pods try: each of them holds a place that others lack.
        """
        sender = self._senders.get(name)
        if sender is None or sender.standing is not Standing.FAILING:
            return ""
        return sender.why if sender.pods >= self._most_pods_failing else ""

    def has_room(self, name: str, now_s: float, starting: int = 0) -> bool:
        """Whether another pod of the namespace gets a slot soon. starting: its pods that are about to be bound."""
        sender = self._senders.get(name) or self._new(name, now_s)
        match sender.standing:
            case Standing.UNTRIED:
                return self._is_in_window(sender) and self._may_be_in_vain(sender, now_s)
            case Standing.WELL:
                few = sender.on_the_wire + sender.waiting < max(1, self._share(sender))
                return few and self._is_in_window(sender)
            case Standing.LATE:
                return False
            case Standing.FAILING:
                return sender.pods + starting < self._most_pods_failing

    def lets_pass(self, name: str, now_s: float) -> bool:
        """Whether pods of others go first: for now there is no slot for another pod of this one."""
        sender = self._senders.get(name)
        if sender is not None and sender.standing is Standing.WELL:
            return not self._is_in_window(sender)
        return not self.has_room(name, now_s)

    def may_send(self, sender: Sender, now_s: float) -> bool:
        """Whether its next request gets a slot now."""
        if not self.free:
            return False
        match sender.standing:
            case Standing.UNTRIED:
                return not sender.on_the_wire and self._may_be_in_vain(sender, now_s)
            case Standing.WELL:
                return sender.on_the_wire < min(sender.window, self._share(sender))
            case Standing.LATE:
                few = sender.on_the_wire < min(sender.window, self._share(sender))
                return few and self._may_be_in_vain(sender, now_s)
            case Standing.FAILING:
                paused = now_s < sender.closed_until_s or sender.on_the_wire > 0
                few = self._sent_by[Standing.FAILING] < self._most_failing
                return not paused and few and self._may_be_in_vain(sender, now_s)

    # What happens

    def enter(self, name: str, now_s: float) -> Sender:
        """A pod of the namespace is being bound from now on."""
        sender = self._senders.get(name)
        if sender is None:
            sender = self._senders[name] = self._new(name, now_s)
        sender.pods += 1
        return sender

    def sender(self, name: str) -> Sender:
        """That has entered, and not left."""
        return self._senders[name]

    def leave(self, sender: Sender) -> None:
        """One no longer is. Of a namespace without any nothing is known but whether it answered last."""
        sender.pods -= 1
        if not sender.pods:
            self._failing -= sender.standing is Standing.FAILING
            del self._senders[sender.name]

    def waits(self, sender: Sender, change: int) -> None:
        """So many more requests of it ask for a slot, or fewer."""
        sender.waiting += change
        self._waiting_by[sender.standing] += change

    def sends(self, sender: Sender, now_s: float) -> None:
        """A request is on the wire."""
        if not sender.on_the_wire:
            if now_s - sender.heard_s > _IDLE_S:
                sender.window = 1
            sender.heard_s = now_s
            self._sending[sender.name] = sender
        self._count_on_the_wire(sender, 1)

    def ends(self, sender: Sender) -> None:
        """A request no longer is."""
        self._count_on_the_wire(sender, -1)
        if not sender.on_the_wire:
            del self._sending[sender.name]

    def answered(self, sender: Sender, now_s: float) -> None:
        """Definitely: it is WELL."""
        sender.window = min(sender.window + 1, self._most)
        self._answered[sender.name] = sender.window, now_s
        self._becomes(sender, Standing.WELL)
        sender.failures, sender.why, sender.closed_until_s, sender.heard_s = 0, "", 0.0, now_s

    def fails(self, sender: Sender, why: str) -> None:
        """No definite answer came."""
        self._answered.pop(sender.name, None)
        self._becomes(sender, Standing.FAILING)
        sender.window = 1
        sender.failures += 1
        sender.why = why

    def failed(self, sender: Sender, error: ApiError, now_s: float, pause_s: Callable[[int], float]) -> None:
        """As `fails`, and nothing more of it for a while. pause_s: seconds after so many failures in a row."""
        self.fails(sender, f"{error.status or NO_ANSWER}: {error.message}")
        at_least_s = error.retry_after_s if isinstance(error, ApiThrottled) else 0.0
        sender.closed_until_s = now_s + max(at_least_s, pause_s(sender.failures))

    def look(self, sender: Sender, now_s: float) -> float:
        """What its silence makes of a namespace that waits for a slot; when to look again, infinity: not for that."""
        if sender.standing is Standing.FAILING:
            return sender.closed_until_s if sender.closed_until_s > now_s else inf
        if not sender.on_the_wire:
            return inf
        if sender.standing is Standing.WELL:
            if not _is_silent(sender, now_s):
                return sender.heard_s + _LATE_S
            self._becomes(sender, Standing.LATE)
        if now_s < sender.heard_s + _SILENT_S:
            return sender.heard_s + _SILENT_S
        # What was answered before says more.
        self.fails(sender, sender.why or f"{NO_ANSWER} for {_SILENT_S:g} s")
        return inf

    # The parts

    def _new(self, name: str, now_s: float) -> Sender:
        """A namespace of which no pod was being bound."""
        window, heard_s = self._answered.get(name, (0, -inf))
        standing = Standing.WELL if window else Standing.UNTRIED
        return Sender(name=name, standing=standing, window=window if now_s - heard_s <= _IDLE_S else 1, heard_s=heard_s)

    @property
    def _most_pods_failing(self) -> int:
        """Of one namespace: all together as many as they have slots, if that is not too few to find one that works."""
        return max(_FEWEST_PODS_FAILING, self._most_failing // max(1, self._failing))

    def _share(self, sender: Sender) -> int:
        """Three quarters of what others leave. Of `dynamic thresholds`: Choudhury and Hahne, 1998, alpha = 3."""
        rest = sender.on_the_wire + self.free
        return rest - rest // 4

    @staticmethod
    def _is_in_window(sender: Sender) -> bool:
        """Whether another pod of it is, or one that waits, for whose sake its silence is noticed."""
        return sender.on_the_wire + sender.waiting <= sender.window

    def _may_be_in_vain(self, sender: Sender, now_s: float) -> bool:
        in_vain = self.on_the_wire - self._sent_by[Standing.WELL]
        most = self._most_in_vain[sender.standing]
        if in_vain >= most or self.on_the_wire < most:
            return in_vain < most
        silent = (one.on_the_wire for one in self._sending.values() if _is_silent(one, now_s))
        return in_vain + sum(silent) < most

    def _becomes(self, sender: Sender, standing: Standing) -> None:
        if sender.standing is standing:
            return
        for counts, number in ((self._sent_by, sender.on_the_wire), (self._waiting_by, sender.waiting)):
            counts[sender.standing] -= number
            counts[standing] += number
        self._failing += (standing is Standing.FAILING) - (sender.standing is Standing.FAILING)
        sender.standing = standing

    def _count_on_the_wire(self, sender: Sender, change: int) -> None:
        sender.on_the_wire += change
        self.on_the_wire += change
        self._sent_by[sender.standing] += change


def how(why: str) -> str:
    """What is worth telling apart of why a namespace fails; "" where it does not."""
    return NO_ANSWER if why.startswith(NO_ANSWER) else "failures" if why else ""


def _is_silent(sender: Sender, now_s: float) -> bool:
    """A WELL one: the others count in any case."""
    return sender.standing is Standing.WELL and now_s >= sender.heard_s + _LATE_S
