"""Outcomes of a Binding that was not created: rejected, or without a definite answer."""

from scheduler.kube import objects


class BindRefused(Exception):
    """Rejected: the placement is undone and the pod backs off."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        settled: bool = False,
        lasting: bool = False,
        held_back: str = "",
        found: objects.PodObject | None = None,
    ) -> None:
        """status: HTTP status of the answer, 0 without one.

        settled: the pod has another node, or is deleted: no POST can change that, and no message is needed. found: the
        pod with its other node, as read.
        lasting: the request will most likely fail again, because of an admission policy or a missing right. held_back:
        not sent, because its namespace fails: how, as `slot_shares.how` words it; "" for a sent one.
        """
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.settled = settled
        self.lasting = lasting
        self.held_back = held_back
        self.found = found


class BindUnknown(Exception):
    """No definite answer: stay assumed and send the identical POST again."""

    def __init__(self, reason: str, status: int, retry_after_s: float = 0.0) -> None:
        """status: HTTP status of the answer, 0 without one. retry_after_s: as the server demands, or 0."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry_after_s = retry_after_s
