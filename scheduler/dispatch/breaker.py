"""Circuit breaker: whether requests of one kind in one namespace get definite answers. Pure.

    HALF_OPEN ── an answer ──▶ CLOSED ── no definite answer ──▶ OPEN ── a back-off is over ──▶ HALF_OPEN
        │                         ▲                              ▲ │                              │
        │                         └────────── an answer ─────────┼─┘                              │
        └────────────────── no definite answer ──────────────────┴────────────────────────────────┘

A new breaker is HALF_OPEN, too: one request shows whether the namespace gets answers.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from scheduler.kube.port import ApiError, ApiRejected, NotSent

NO_ANSWER: Final = "no answer"
# RBAC's own message, not that of an admission policy: every such request of this namespace would be rejected.
_NO_RIGHT: Final = re.compile(r'\bcannot [a-z]+ resource "')
_UNAUTHORIZED: Final = 401


class Circuit(Enum):
    """CLOSED: requests may be sent. OPEN: none. HALF_OPEN: one at a time."""

    CLOSED = auto()
    OPEN = auto()
    HALF_OPEN = auto()


@dataclass(slots=True)
class Breaker:
    """State of one circuit. failures: consecutive ones, each after a trial. why: message of the last one.

    other: message of the last one, if it is of another kind than `why`. Two kinds may alternate, and all waiting pods
    are told of each change, so only the second failure of another kind in a row is one.
    """

    state: Circuit = Circuit.HALF_OPEN
    failures: int = 0
    why: str = ""
    other: str = ""

    @property
    def has_failed_again(self) -> bool:
        """Whether a request after a back-off failed, too. One failure may be chance."""
        return self.failures > 1

    def ended(self, error: BaseException | None) -> bool:
        """Record the outcome of a request; None: it succeeded. Return whether the circuit opens now."""
        if error is None or is_answer(error):
            self.state, self.failures, self.why, self.other = Circuit.CLOSED, 0, "", ""
        elif isinstance(error, ApiError) and not isinstance(error, NotSent):
            self._note(f"{error.status or NO_ANSWER}: {error.message}")
            if self.state is not Circuit.OPEN:
                self.state = Circuit.OPEN
                self.failures += 1
                return True
        return False

    def _note(self, why: str) -> None:
        kind = failure_kind(why)
        if failure_kind(self.why) in {"", kind} or failure_kind(self.other) == kind:
            self.why, self.other = why, ""
        else:
            self.other = why

    def try_again(self) -> None:
        """Record that the back-off is over."""
        if self.state is Circuit.OPEN:
            self.state = Circuit.HALF_OPEN


def is_answer(error: BaseException) -> bool:
    """Whether the request itself was rejected, not the credentials of the scheduler or a permission that it lacks."""
    if not isinstance(error, ApiRejected):
        return False
    return error.status != _UNAUTHORIZED and not _NO_RIGHT.search(error.message)


def failure_kind(why: str) -> str:
    """Kind of a failure, from its message; "" if there is none."""
    return NO_ANSWER if why.startswith(NO_ANSWER) else "failures" if why else ""
