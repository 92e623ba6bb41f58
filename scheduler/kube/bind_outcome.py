"""How a Binding ends that was not created: refused, or without a definite answer."""

from scheduler.kube import objects


class BindRejected(Exception):
    """Refused: the placement is undone and the pod backs off."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        settled: bool = False,
        lasting: bool = False,
        throttled: str = "",
        found: objects.PodObject | None = None,
    ) -> None:
        """status: HTTP status of the answer, 0 when something else decided.

        settled: the pod has another place, or is gone: no POST can change that, and nobody needs to be told.
        found: the pod with its other place, as it was read.
        lasting: a request failed that most likely fails again: by a policy, or since a right is missing.
        throttled: not sent, for its namespace fails: how, as `namespace_limiters.failure_kind` says; "" for one that was sent.
        """
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.settled = settled
        self.lasting = lasting
        self.throttled = throttled
        self.found = found


class BindUnknown(Exception):
    """No definite answer: stay assumed and send the identical POST again."""

    def __init__(self, reason: str, status: int, retry_after_s: float = 0.0) -> None:
        """status: HTTP status of the answer, 0 without one. retry_after_s: as the server demands, or 0."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry_after_s = retry_after_s
