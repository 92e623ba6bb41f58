"""Waiting until a server answers, noticing when it dies instead."""

import http.client
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from e2e.access import Access
from e2e.processes import Child

START_WITHIN_S: Final = 60.0
_POLL_EVERY_S: Final = 0.05
_ANSWER_WITHIN_S: Final = 5.0


class NotReady(Exception):
    """A server runs but did not get ready in time; the message says what it last answered."""


def wait_until(child: Child, answers: Callable[[], str | None]) -> None:
    """Return once `answers()` is None; otherwise it says what is still missing.

    Raises Died if the child ends, NotReady after START_WITHIN_S.
    """
    give_up_at_s = time.monotonic() + START_WITHIN_S
    while (missing := answers()) is not None:
        child.check_alive()
        if time.monotonic() > give_up_at_s:
            tail = child.log.read_text(errors="replace")[-3000:]
            message = f"{child.name} is not ready after {START_WITHIN_S} s: {missing}\n{tail}"
            raise NotReady(message)
        time.sleep(_POLL_EVERY_S)


def missing_at(access: Access, *paths: str) -> Callable[[], str | None]:
    """A question for `wait_until`: which of the paths does not answer 200 yet?"""

    def ask() -> str | None:
        for path in paths:
            status = _status(access, path)
            if status != "200":
                return f"{path}: {status}"
        return None

    return ask


def missing_at_http(port: int, path: str) -> Callable[[], str | None]:
    """The same for a server without TLS on this machine."""

    def ask() -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_WITHIN_S)
        status = _answer(connection, path, {})
        return None if status == "200" else f"{path}: {status}"

    return ask


def _status(access: Access, path: str) -> str:
    connection = http.client.HTTPSConnection(urlsplit(access.url).netloc, context=access.tls, timeout=_ANSWER_WITHIN_S)
    headers = {"Authorization": access.authorization} if access.authorization else {}
    return _answer(connection, path, headers)


def _answer(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> str:
    try:
        connection.request("GET", path, headers=headers)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
