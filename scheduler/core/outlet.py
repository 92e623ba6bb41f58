"""Capacity of dispatch, as the core sees it. Pure: the core only asks."""

from typing import Protocol


class Outlet(Protocol):
    """Dispatch as the core sees it."""

    @property
    def may_place(self) -> bool:
        """Whether another pod would be bound at once. Otherwise it stays in the queue, which is in priority order."""

    def may_bind(self, namespace: str) -> bool:
        """Whether another pod of the namespace may be placed."""

    def failing(self, namespace: str) -> str:
        """How Bindings of the namespace fail now, in a few words; "" if they do not."""


class Unlimited:
    """Outlet that takes everything at once."""

    may_place = True

    def may_bind(self, namespace: str) -> bool:  # noqa: ARG002 - as the protocol
        return True

    def failing(self, namespace: str) -> str:  # noqa: ARG002 - as the protocol
        return ""
