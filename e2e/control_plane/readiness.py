"""Waits until a server answers, or reports that it has died."""

import http.client
import json
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from e2e.control_plane.admin import Access, ask
from e2e.control_plane.processes import Child

START_WITHIN_S: Final = 60.0
_POLL_EVERY_S: Final = 0.05
_ANSWER_WITHIN_S: Final = 5.0


class NotReady(Exception):
    """A server runs but did not get ready in time; the message has its last answer."""


def wait_until(child: Child, answers: Callable[[], str | None]) -> None:
    """Return once `answers()` is None; otherwise it returns the missing condition.

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
    """Return a check for `wait_until` of which paths do not answer 200 yet."""

    def question() -> str | None:
        for path in paths:
            status = _status(access, path)
            if status != "200":
                return f"{path}: {status}"
        return None

    return question


def missing_of_node(access: Access, name: str) -> Callable[[], str | None]:
    """Return a check of whether the node exists and its kubelet reports it as ready."""

    def question() -> str | None:
        path = f"/api/v1/nodes/{name}"
        try:
            answer = ask(access, path)
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        if answer.status != HTTPStatus.OK:
            return f"{path}: {answer.status}"
        conditions = json.loads(answer.body)["status"].get("conditions", [])
        ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
        return None if ready and ready["status"] == "True" else f"{path}: {ready}"

    return question


def missing_at_http(port: int, path: str) -> Callable[[], str | None]:
    """Return a check of a server without TLS on this machine."""

    def question() -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_WITHIN_S)
        try:
            connection.request("GET", path)
            status = str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            status = repr(error)
        finally:
            connection.close()
        return None if status == "200" else f"{path}: {status}"

    return question


def missing_at_socket(path: Path) -> Callable[[], str | None]:
    """Return a check of whether a server on a unix socket accepts connections."""

    def question() -> str | None:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError as error:
                return f"{path}: {error!r}"
        return None

    return question


def _status(access: Access, path: str) -> str:
    try:
        return str(ask(access, path).status)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
