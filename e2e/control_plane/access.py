"""How to reach one API server as one user, and one request to it that waits for its answer."""

import http.client
import ssl
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_ANSWER_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs.

    url: without a path. authorization: value of that header; None: the TLS context has a client
    certificate instead.
    """

    url: str
    tls: ssl.SSLContext
    authorization: str | None


class Reply(NamedTuple):
    """Status code and body as it came."""

    status: int
    body: bytes


def ask(access: Access, path: str, method: str = "GET") -> Reply:
    """Send one request without a body, on a connection of its own. Raises OSError, http.client.HTTPException."""
    connection = http.client.HTTPSConnection(urlsplit(access.url).netloc, context=access.tls, timeout=_ANSWER_WITHIN_S)
    headers = {"Authorization": access.authorization} if access.authorization else {}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    finally:
        connection.close()
