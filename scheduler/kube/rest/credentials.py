"""The Authorization header of every request, and how it stays valid.

    FRESH --refresh_after_s--> DUE --valid_for_s--> EXPIRED
      ^                         |                      |
      +---- loaded, beside the requests --+            |
      +---- loaded, while the requests wait -----------+
      +---- loaded, after a 401 (renew)

DUE:     a file may have been rotated, or most of an exec credential's life is over: a reload starts and the requests
         go on with what there is.
EXPIRED: the requests wait for the reload; when it fails they are sent all the same, and the server decides.
Owned by the event loop. One reload at a time, in a task of its own, so that a request's time-out does not end it.
"""

import asyncio
import contextlib
import math
from dataclasses import dataclass
from typing import Final, Protocol

from kubernetes.aio.client import Configuration

RETRY_AFTER_FAILURE_S: Final = 10.0
_HEADER: Final = "BearerToken"


class NotRenewed(Exception):
    """Credentials could not be renewed; the message says why."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long loaded credentials serve, in seconds from now; infinity where nothing says when they end."""

    refresh_after_s: float = math.inf
    valid_for_s: float = math.inf


class Source(Protocol):
    """Where credentials come from: a kubeconfig, or the pod's service account."""

    async def load(self, configuration: Configuration) -> Lifetime:
        """Put current credentials into `configuration`. Raises NotRenewed."""
        ...


class Credentials:
    """Keeps the credentials in one Configuration current.

    The library renews only in its own `call_api`, which raw requests bypass; so this is its
    `refresh_api_key_hook`, called before every request.
    """

    def __init__(self, configuration: Configuration, source: Source) -> None:
        self._configuration = configuration
        self._source = source
        self._due_s = self._expired_s = -math.inf
        self._loading: asyncio.Task[None] | None = None
        configuration.refresh_api_key_hook = self._refresh  # type: ignore[assignment] # declared by its default, None

    async def load(self) -> None:
        """Load now. Raises NotRenewed."""
        await asyncio.shield(self._loading_task())

    async def authorization(self) -> str | None:
        """Value for the header; None: the TLS client certificate says who we are, or nothing does."""
        value = await self._configuration.get_api_key_with_prefix(_HEADER)
        # A token file written by hand ends in a newline, and a header must not.
        return value.strip() if value else None

    async def renew(self, refused: str | None) -> None:
        """Load again after a 401 to a request that carried `refused`. Raises NotRenewed.

        Requests refused together renew once: whoever finds another value in place already only repeats.
        """
        if (self._configuration.api_key.get(_HEADER) or "").strip() == (refused or ""):
            await self.load()

    async def close(self) -> None:
        """End a reload that is under way."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])

    async def _refresh(self, _: Configuration) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._due_s:
            return
        task = self._loading_task()
        if now_s >= self._expired_s:
            with contextlib.suppress(NotRenewed):
                await asyncio.shield(task)

    def _loading_task(self) -> asyncio.Task[None]:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(self._loaded)
        return self._loading

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + RETRY_AFTER_FAILURE_S
        lifetime = await self._source.load(self._configuration)
        self._due_s = loop.time() + lifetime.refresh_after_s
        self._expired_s = loop.time() + lifetime.valid_for_s

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        if not task.cancelled():
            task.exception()  # seen, also where no request waited for it
