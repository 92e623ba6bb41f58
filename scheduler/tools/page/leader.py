"""Page of the leader, to which a standby replica forwards its viewers' queries, with their tokens.

    the Lease names a page ──▶ it shows our own certificate ──▶ the query, with the token ─────▶ its answer, as it comes
             │ no                        │ no, or nothing                    │ not by the leader, or nothing
             └───────────────────────────┴──────────▶ own tables ◀───────────┘

Anyone who can write the Lease can name any address. So nothing is sent before the other end has proved through TLS that
it has the key of this replica's own page certificate, because the replicas mount the same Secret. Redirects are not
followed. Answers are not buffered: they are read as fast as the browser accepts them.
"""

import asyncio
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import aiohttp
import structlog
import yarl
from aiohttp import web

from scheduler.kube.rest.failures import one_line
from scheduler.process.places import wrote
from scheduler.tools.page.access import Allowance

# Marks a request that a page has forwarded, and names that page's form; it is not forwarded again.
FORWARDED: Final = "Gpushare-Forwarded"
_ADDRESS: Final = re.compile(r"https://(\[[0-9A-Fa-f:.]{2,45}\]|[0-9.]{7,15}):([1-9][0-9]{0,4})")
_LONGEST_URL: Final = 80
# Maximum number of concurrent streams and queries.
_CONNECTIONS: Final = 16
_CONNECT_S: Final = 2.0
# A query waits for its turn; a stream sends a line a second, unless the leader has much to send to others.
_SILENT_S: Final = 30.0
# Interval of checks of the Lease, while a stream is silent.
_LOOK_EVERY_S: Final = 1.0
# Longer than a stream lasts, shorter than the server here waits for an answer.
_ANSWER_S: Final = 70.0
_MOST_BYTES: Final = 2**26
_READ_BUFFER: Final = 2**16
_TOLD_EVERY_S: Final = 60.0
# The leader's answers for viewers. Any other status counts as no answer: the leader is full, or no longer leads.
_ANSWERS: Final = frozenset(
    {
        HTTPStatus.OK,
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)

log = structlog.get_logger()


def page_url(text: str | None) -> str:
    """Return `text` if it is `https://IP_ADDRESS:PORT`, otherwise "". text: from a Lease, so it may be anything."""
    found = _ADDRESS.fullmatch(text) if text is not None and len(text) <= _LONGEST_URL else None
    if found is None:
        return ""
    try:
        ipaddress.ip_address(found[1].strip("[]"))
    except ValueError:
        return ""
    return found[0]


def own_url(listen: tuple[str, int], pod_ip: str) -> str:
    """Return the URL of our page for other replicas; "" if it listens elsewhere, or the pod's address is unknown."""
    host, port = listen
    if host not in {"", "0.0.0.0", "::", pod_ip}:  # noqa: S104 - it is compared
        return ""
    return page_url(f"https://[{pod_ip}]:{port}" if ":" in pod_ip else f"https://{pod_ip}:{port}")


class LeaderPage:
    """Connection to the leader's page. Create it inside the event loop that uses it."""

    def __init__(
        self, named: Callable[[], str | None], fingerprint: Callable[[], bytes], now_s: Callable[[], float]
    ) -> None:
        """named: returns the Lease's current URL. fingerprint: returns SHA-256 of the certificate required there."""
        self._named = named
        self._fingerprint = fingerprint
        # aiohttp reuses a connection only for the same object, not for an equal one.
        self._pin: aiohttp.Fingerprint | None = None
        self._tells = Allowance(1 / _TOLD_EVERY_S, 1.0, now_s)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            read_bufsize=_READ_BUFFER,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def answered(self, request: web.BaseRequest, form: str, back: "Back") -> web.StreamResponse | None:
        """Forward the query and return the answer; None if the local tables must answer.

        request: from an authorized viewer. form: version of our own page, see `form_of`.
        """
        named = self._named()
        url = page_url(named)
        if not url:
            return None
        try:
            answer = await self._asked(url, request, form)
        except (aiohttp.ClientError, OSError) as error:
            self._tell(url, error)
            return None
        try:
            if answer.status not in _ANSWERS:
                return None
            return await back.passed(answer, request, lambda: self._named() == named)
        finally:
            # The rest is not read; the connection is reused if nothing is left.
            answer.close()

    async def _asked(self, url: str, request: web.BaseRequest, form: str) -> aiohttp.ClientResponse:
        """Send the query; return the head of the answer.

        Raises aiohttp.ClientError or OSError (so also TimeoutError).
        """
        query, digest = request.rel_url.raw_query_string, self._fingerprint()
        if self._pin is None or self._pin.fingerprint != digest:
            self._pin = aiohttp.Fingerprint(digest)
        return await self._session.get(
            yarl.URL(f"{url}{request.path}?{query}", encoded=True),
            headers={"Authorization": request.headers.get("Authorization", ""), FORWARDED: form},
            ssl=self._pin,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_connect=_CONNECT_S, sock_read=_SILENT_S),
        )

    def _tell(self, url: str, error: Exception) -> None:
        """Log an error, at a limited rate, because a viewer can cause it any number of times."""
        if self._tells.take():
            log.warning("page.leader_not_reached", leader=url, reason=_why(error))


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        return "it presents a different certificate"
    said = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return one_line(str(said)) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Back:
    """Way to pass an answer back to the browser. headers: those of our own page.

    write_s: time limit for the browser to accept a piece of it.
    """

    stream: bool
    headers: Mapping[str, str]
    write_s: float

    async def passed(
        self, answer: aiohttp.ClientResponse, request: web.BaseRequest, leads: Callable[[], bool]
    ) -> web.StreamResponse:
        """Forward the answer as it arrives, to its end. leads: whether the Lease still names this page."""
        response = web.StreamResponse(status=answer.status, headers=self.headers)
        try:
            await response.prepare(request)
            async with asyncio.timeout(_ANSWER_S):
                whole = await self._copied(answer, request, response, leads)
        except (aiohttp.ClientError, OSError):
            whole = False
        if not whole and request.transport is not None:
            # The browser must not take this for the complete answer.
            request.transport.abort()
        return response

    async def _copied(
        self,
        answer: aiohttp.ClientResponse,
        request: web.BaseRequest,
        response: web.StreamResponse,
        leads: Callable[[], bool],
    ) -> bool:
        """Copy the answer. Returns False if it is too long.

        A stream may end after any line: the page then asks again.
        """
        left = _MOST_BYTES
        while not self.stream or leads():
            piece = await _piece(answer)
            if piece is None:
                continue
            left -= len(piece)
            if not piece or left < 0:
                return self.stream or not piece
            async with asyncio.timeout(self.write_s):
                await response.write(piece)
            wrote(request, asyncio.get_running_loop().time())
        return True


async def _piece(answer: aiohttp.ClientResponse) -> bytes | None:
    """Return the next data; b"" at the end, None after a while without data. Raises aiohttp.ClientError."""
    try:
        async with asyncio.timeout(_LOOK_EVERY_S):
            return await answer.content.readany()
    except aiohttp.ServerTimeoutError:
        raise
    except TimeoutError:
        return None
