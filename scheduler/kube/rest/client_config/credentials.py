"""Credentials of every request: identity headers and the connection's certificate, kept valid.

    FRESH --refresh_after_s--> DUE --valid_for_s--> EXPIRED
      ^                         |                      |
      +---- loaded, requests continue ----+            |
      +---- loaded, while the requests wait -----------+
      +---- loaded, after a 401 (renew)

DUE:     a file may have been rotated, or most of an exec credential's life is over: a reload starts, and requests
         continue with the current ones.
EXPIRED: requests wait for the reload; if it fails, they are sent anyway, and the server decides.

Owned by the event loop. One reload at a time, in its own task, so that a request's time-out does not cancel it.

Also the headers that ask the API server to act as another user (`as` in a kubeconfig).
Source: client-go, transport/round_trippers.go, NewImpersonatingRoundTripper.
"""

import asyncio
import contextlib
import math
import ssl
import string
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import structlog

from scheduler.kube.rest.client_config.certificates import Certificates, NotUsable, TlsMaterial
from scheduler.kube.rest.client_config.kubeconfig_file import KubeconfigUser

# Name and value; a name may occur more than once.
Headers: TypeAlias = tuple[tuple[str, str], ...]
# RFC 9110, token; without the percent sign, which begins an escape.
_OF_A_NAME: Final = frozenset((string.ascii_letters + string.digits + "!#$&'*+-.^_`|~").encode())


def impersonation(user: KubeconfigUser) -> Headers:
    """Headers for impersonation; empty if there is none."""
    if not user.impersonate:
        return ()
    found = [("Impersonate-User", user.impersonate)]
    if user.impersonate_uid:
        found.append(("Impersonate-Uid", user.impersonate_uid))
    found += [("Impersonate-Group", group) for group in user.impersonate_groups]
    for key, values in user.impersonate_extra.items():
        found += [(f"Impersonate-Extra-{_escaped(key)}", value) for value in values]
    return tuple(found)


def sendable(value: str) -> bool:
    """Whether the text can be a header value: no control characters except tabs (Go: ValidHeaderFieldValue)."""
    return all(char == "\t" or (char >= " " and char != "\x7f") for char in value)


def _escaped(key: str) -> str:
    """Key of a user's `extra` as part of a header name: bytes that a header name may not have are percent-encoded."""
    return "".join(chr(byte) if byte in _OF_A_NAME else f"%{byte:02X}" for byte in key.encode())


log = structlog.get_logger()
RETRY_AFTER_FAILURE_S: Final = 10.0


class NotRenewed(Exception):
    """Credentials could not be renewed; the message says why."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Lifetime of loaded credentials, in seconds from now; infinity if unknown."""

    refresh_after_s: float = math.inf
    valid_for_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Current credentials.

    authorization: value of the header; "" if we use a TLS client certificate or no credentials. impersonation: headers
    that request to act as another user.
    """

    authorization: str = ""
    impersonation: Headers = ()
    tls: TlsMaterial = field(default_factory=TlsMaterial)
    lifetime: Lifetime = field(default_factory=Lifetime)


class Source(Protocol):
    """Source of credentials: a kubeconfig, or the pod's service account."""

    async def load(self) -> Loaded:
        """Return current credentials. Raises NotRenewed."""
        ...


class Credentials:
    """The current credentials of one source.

    Every request reads them here. They are computed once per load, because every pod needs two requests.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._certificates = Certificates()
        # Why the last load failed, "" if it succeeded; None before the first success.
        self._failure: str | None = None
        self._due_s = self._expired_s = -math.inf
        self._loading: asyncio.Task[None] | None = None
        self._identity: Headers = ()

    async def load(self) -> None:
        """Load now. Raises NotRenewed."""
        await asyncio.shield(self._loading_task())

    async def identity(self) -> Headers:
        """Headers that identify the sender and the user it acts as; the same tuple until they change."""
        if (now_s := asyncio.get_running_loop().time()) >= self._due_s:
            await self._refresh(now_s)
        return self._identity

    @property
    def tls(self) -> ssl.SSLContext:
        """Context for new connections; a new object when the certificates have changed. Valid after the first load."""
        return self._certificates.tls

    async def renew(self, refused: Headers, over: ssl.SSLContext) -> None:
        """Load again after a 401 to a request with the headers `refused` and the TLS context `over`. Raises NotRenewed.

        Does nothing if other credentials are already in place, so that several requests rejected together renew once.
        """
        if self._identity == refused and self.tls is over:
            await self.load()

    async def close(self) -> None:
        """Cancel a pending reload."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])

    async def _refresh(self, now_s: float) -> None:
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
        loaded = await self._source.load()
        identity = _headers(loaded)
        try:
            changed = self._certificates.follow(loaded.tls)
        except NotUsable as error:
            raise NotRenewed(str(error)) from error
        if identity != self._identity:
            self._identity = identity
        if changed:
            certificate = loaded.tls.certificate.source if loaded.tls.certificate else ""
            log.info("credentials.certificates_changed", certificate=certificate)
        self._due_s = loop.time() + loaded.lifetime.refresh_after_s
        self._expired_s = loop.time() + loaded.lifetime.valid_for_s

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        if task.cancelled():
            return
        # Retrieve the exception here, even if no request waited for it.
        if (error := task.exception()) is None:
            self._failure = ""
        elif self._failure is not None and self._failure != str(error):
            self._failure = str(error)
            log.warning("credentials.not_renewed", reason=self._failure, retry_in_s=RETRY_AFTER_FAILURE_S)


def _headers(loaded: Loaded) -> Headers:
    authorization = loaded.authorization.rstrip(" ")
    if not (authorization.isascii() and authorization.isprintable()):
        raise NotRenewed("the token has characters that are invalid in a header; it must be one line of ASCII text")
    for name, value in loaded.impersonation:
        if not sendable(value):
            message = f"a value of {name} (as, as-uid, as-groups, as-user-extra) has control characters; correct it"
            raise NotRenewed(message)
    return ((("Authorization", authorization),) if authorization else ()) + loaded.impersonation
