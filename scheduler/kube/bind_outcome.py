"""Errors for a Binding that was not created: rejected, or without a definite answer."""

from scheduler.kube import objects


class BindRejected(Exception):
    """The Binding was rejected: the placement is undone and the pod backs off."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        settled: bool = False,
        lasting: bool = False,
        found: objects.PodObject | None = None,
    ) -> None:
        """status: HTTP status of the answer, 0 if there was none.

        settled: the pod has another node or was deleted, so no POST can succeed, and no message is needed.
        found: the pod with its other node, as read.
        lasting: the request will probably fail again: a policy rejects it, or a permission is missing.
        """
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.settled = settled
        self.lasting = lasting
        self.found = found


class BindUnknown(Exception):
    """No definite answer: the pod stays assumed, and the identical POST is retried."""

    def __init__(self, reason: str, status: int, retry_after_s: float = 0.0) -> None:
        """status: HTTP status of the answer, 0 if there was none. retry_after_s: Retry-After, 0 if absent."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry_after_s = retry_after_s
