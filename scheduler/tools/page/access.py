"""Viewers of the page and the namespaces that they may see, decided by the API server and cached for a minute.

    token ──digest──▶ known ──▶ Viewer ──sees(namespace)──▶ known ──▶ yes or no
                        │ no                                  │ unknown: no, and a review is requested
                        └─▶ TokenReview, `get` on /gpushare   └─▶ `list pods` there

Requests with the same token share one review. Reviews are limited to a few a second: beyond that an unknown token is
rejected with a request to retry, and the review of a namespace waits. Known tokens have a limit of their own, so a
flood of unknown ones cannot affect them; beyond it, the last answer stays valid for another minute. No token is kept,
only its digest. Owned by the event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from http import HTTPStatus
from math import inf
from typing import Final, Protocol

from cachetools import LRUCache

from scheduler.kube.port import ApiError, ApiForbidden
from scheduler.kube.rest.reviews import User

PATH: Final = "/gpushare"
KEPT_S: Final = 60.0
# A newly granted right takes effect soon.
_REFUSAL_KEPT_S: Final = 5.0
# Answers are renewed before they expire, so that names do not disappear and come back.
_AGAIN_AFTER_S: Final = 45.0
_MOST_TOKENS: Final = 256
_MOST_NAMESPACES: Final = 4096
_LONGEST_TOKEN: Final = 16_384
_REVIEWS_A_SECOND: Final = 10.0
_BURST: Final = 20.0
# Concurrent reviews, for a slow API server: each may hold a connection.
_MOST_AT_ONCE: Final = 8
_BEARER: Final = "bearer "


class AccessDenied(Exception):
    """Access denied. status: HTTP status; message: a sentence for the viewer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Reviewer(Protocol):
    """Source of reviews, see `scheduler.kube.rest.reviews.Reviews`. Every method raises ApiError."""

    async def user_of(self, token: str) -> User | None:
        """Return the owner of the token; None for an invalid token."""
        ...

    async def may_get_url(self, user: User, path: str) -> bool:
        """Return whether the user may `get` a nonResourceURL."""
        ...

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        """Return whether the user may list the pods of a namespace; "" for all namespaces."""
        ...


class Allowance:
    """Rate limit: a number per second, and a small burst."""

    def __init__(self, per_s: float, burst: float, now_s: Callable[[], float]) -> None:
        self._per_s, self._burst, self._now_s = per_s, burst, now_s
        self._left, self._counted_s = burst, now_s()

    def take(self) -> bool:
        """Use up one request. Returns False if none is left."""
        now_s = self._now_s()
        self._left = min(self._burst, self._left + (now_s - self._counted_s) * self._per_s)
        self._counted_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Viewer:
    """A user who may see the page. until_s: when to review that again. version: changes with each newly known right."""

    def __init__(self, user: User, until_s: float) -> None:
        self.user = user
        self.until_s = until_s
        self.version = 0
        # Namespace, "" for all of them -> (whether its pods may be listed, time of that answer).
        self.rights: LRUCache[str, tuple[bool, float]] = LRUCache(_MOST_NAMESPACES)
        self.wanted: OrderedDict[str, None] = OrderedDict([("", None)])

    def sees(self, namespace: str, now_s: float) -> bool:
        """Return whether to show pods of the namespace by name.

        If this is unknown, request a review and return False.
        """
        return self._may("", now_s) or self._may(namespace, now_s)

    def _may(self, namespace: str, now_s: float) -> bool:
        allowed, asked_s = self.rights.get(namespace, (False, -KEPT_S))
        if now_s - asked_s >= _AGAIN_AFTER_S and len(self.wanted) < _MOST_NAMESPACES:
            self.wanted[namespace] = None
        return allowed and now_s - asked_s < KEPT_S


class Guard(Protocol):
    """Access control for viewers."""

    async def viewer(self, authorization: str) -> Viewer:
        """Return the viewer with this header. Raises AccessDenied."""
        ...

    def learn(self, viewer: Viewer) -> None:
        """Request the viewer's unknown rights to namespaces in the background."""
        ...

    async def close(self) -> None:
        """Cancel running reviews."""
        ...


class Everybody(Guard):
    """Access for everyone, on a cluster without secrets: the demo's."""

    def __init__(self) -> None:
        self._viewer = Viewer(User("everybody"), inf)
        self._viewer.rights[""] = (True, inf)

    async def viewer(self, authorization: str) -> Viewer:  # noqa: ARG002 - as Guard
        """Return one viewer for all requests."""
        return self._viewer

    def learn(self, viewer: Viewer) -> None:
        """Do nothing: there is nothing to request."""

    async def close(self) -> None:
        """Do nothing: there is nothing to cancel."""


class _Reviews:
    """Reviews of one kind of token. asking: running reviews, by digest."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.allowance = Allowance(_REVIEWS_A_SECOND, _BURST, now_s)
        self.asking: dict[bytes, asyncio.Task[Viewer]] = {}

    def ended(self, digest: bytes, done: asyncio.Task[Viewer]) -> None:
        """Record the end of a review."""
        del self.asking[digest]
        if not done.cancelled():
            done.exception()  # retrieved here, because there may be no caller waiting


class Access(Guard):
    """Viewers by their tokens, decided by the API server."""

    def __init__(self, reviewer: Reviewer, now_s: Callable[[], float]) -> None:
        """now_s: monotonic."""
        self._reviewer = reviewer
        self._now_s = now_s
        # Reviews of unknown tokens, and of known ones.
        self._strangers, self._known = _Reviews(now_s), _Reviews(now_s)
        self._namespaces = Allowance(_REVIEWS_A_SECOND, _BURST, now_s)
        self._viewers: LRUCache[bytes, Viewer] = LRUCache(_MOST_TOKENS)
        self._refusals: LRUCache[bytes, tuple[AccessDenied, float]] = LRUCache(_MOST_TOKENS)
        self._learning: dict[Viewer, asyncio.Task[None]] = {}

    async def viewer(self, authorization: str) -> Viewer:
        """Return the viewer with this header. Raises AccessDenied."""
        token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            raise AccessDenied(HTTPStatus.UNAUTHORIZED, "This page needs a token of the cluster.")
        digest, now_s = blake2b(token.encode(), digest_size=32).digest(), self._now_s()
        known = self._viewers.get(digest)
        if known is not None and now_s < known.until_s:
            return known
        refused, until_s = self._refusals.get(digest, (None, 0.0))
        if refused is not None and now_s < until_s:
            raise AccessDenied(refused.status, refused.message)
        asking = self._asked(digest, token, known)
        if asking is None:
            if known is not None and now_s < known.until_s + KEPT_S:
                return known
            raise AccessDenied(
                HTTPStatus.TOO_MANY_REQUESTS, "Too many tokens are being checked; try again in a moment."
            )
        # A caller that leaves does not cancel it for the others.
        return await asyncio.shield(asking)

    def learn(self, viewer: Viewer) -> None:
        """Request the viewer's unknown rights to namespaces in the background."""
        if viewer.wanted and viewer not in self._learning:
            learning = self._learning[viewer] = asyncio.create_task(self._learn(viewer))
            learning.add_done_callback(lambda _: self._learning.pop(viewer))

    async def close(self) -> None:
        """Cancel running reviews."""
        tasks = [*self._strangers.asking.values(), *self._known.asking.values(), *self._learning.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _asked(self, digest: bytes, token: str, known: Viewer | None) -> asyncio.Task[Viewer] | None:
        """Return the review of a token; None if there are too many."""
        for reviews in (self._strangers, self._known):
            if (asking := reviews.asking.get(digest)) is not None:
                return asking
        reviews = self._strangers if known is None else self._known
        if len(reviews.asking) >= _MOST_AT_ONCE or not reviews.allowance.take():
            return None
        asking = reviews.asking[digest] = asyncio.create_task(self._reviewed(digest, token, known))
        asking.add_done_callback(lambda done: reviews.ended(digest, done))
        return asking

    async def _reviewed(self, digest: bytes, token: str, known: Viewer | None) -> Viewer:
        began_s = self._now_s()
        try:
            user = await self._reviewer.user_of(token)
            allowed = user is not None and await self._reviewer.may_get_url(user, PATH)
        except ApiError as error:
            raise AccessDenied(HTTPStatus.SERVICE_UNAVAILABLE, _unanswered(error)) from error
        if user is None or not allowed:
            self._viewers.pop(digest, None)
            refused = _refusal(user)
            self._refusals[digest] = (refused, self._now_s() + _REFUSAL_KEPT_S)
            raise refused
        if known is not None and known.user == user:
            known.until_s = began_s + KEPT_S
            return known
        viewer = self._viewers[digest] = Viewer(user, began_s + KEPT_S)
        # Before the first answer: most viewers need nothing else.
        await self._learn_one(viewer, "")
        return viewer

    async def _learn(self, viewer: Viewer) -> None:
        while viewer.wanted:
            namespace = next(iter(viewer.wanted))
            if not self._namespaces.take():
                await asyncio.sleep(1 / _REVIEWS_A_SECOND)
                continue
            if not await self._learn_one(viewer, namespace):
                return

    async def _learn_one(self, viewer: Viewer, namespace: str) -> bool:
        """Learn one right. Returns False if the API server does not answer: the next viewer repeats the request."""
        asked_s = self._now_s()
        try:
            allowed = await self._reviewer.may_list_pods(viewer.user, namespace)
        except ApiError:
            return False
        finally:
            viewer.wanted.pop(namespace, None)
        before = viewer.rights.get(namespace, (False, 0.0))[0]
        viewer.rights[namespace] = (allowed, asked_s)
        viewer.version += allowed is not before
        return True


def _refusal(user: User | None) -> AccessDenied:
    if user is None:
        return AccessDenied(HTTPStatus.UNAUTHORIZED, "The cluster does not accept this token; it may have expired.")
    return AccessDenied(
        HTTPStatus.FORBIDDEN,
        f"{user.username} may not see this page: the right to get the nonResourceURL {PATH} is missing.",
    )


def _unanswered(error: ApiError) -> str:
    if isinstance(error, ApiForbidden):
        return "The scheduler's account is not allowed to check tokens: apply deploy/optional/page.yaml."
    return "The API server cannot check the token now; try again in a moment."
