"""Transitions that a pod's state does not allow, in the tables and in the queue."""


class TransitionError(Exception):
    """A verb that the pod's state does not allow: our own bug, so the process ends and starts clean."""


def expect(holds: bool, message: str) -> None:  # noqa: FBT001 - reads like an assertion, which it is
    """Raise TransitionError unless it holds."""
    if not holds:
        raise TransitionError(message)
