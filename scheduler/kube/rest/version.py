"""Reads the API server's version at its first answer, and logs it with the features that are off in this version.

Every account may read `/version` by default (ClusterRole system:public-info-viewer); the programs also work without
this right. Source of the document: staging/src/k8s.io/apimachinery/pkg/version/types.go, Info.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPMethod, HTTPStatus
from typing import Final, TypeAlias

import msgspec
import structlog

from scheduler.kube import versions
from scheduler.kube.port import ApiError, ApiRejected
from scheduler.kube.rest.failures import MALFORMED, not_an_answer, one_line
from scheduler.kube.rest.transport import Transport
from scheduler.kube.versions import Feature, ServerVersion, VersionNotice

log = structlog.get_logger()
Read: TypeAlias = Callable[[], Awaitable[ServerVersion]]
Say: TypeAlias = Callable[[VersionNotice], None]

_PATH: Final = "/version"
_LONGEST: Final = 64
_AGAIN_S: Final = 60.0
_SAID_AT: Final = 2


class _Info(msgspec.Struct, rename="camel"):
    git_version: str
    emulation_major: str = ""
    emulation_minor: str = ""


_INFO: Final = msgspec.json.Decoder(_Info)


async def read(transport: Transport, timeout_s: float) -> ServerVersion:
    """Version of the API server. Raises ApiError."""
    # The document is not an API object: it has no kind.
    body = await transport.send(HTTPMethod.GET, _PATH, answers="", timeout_s=timeout_s)
    try:
        info = _INFO.decode(body)
    except MALFORMED as error:
        raise not_an_answer(HTTPStatus.OK, body) from error
    emulated = f"v{info.emulation_major}.{info.emulation_minor}" if info.emulation_minor else ""
    announced = versions.minor_of(info.git_version)
    if versions.minor_of(emulated) == announced:
        emulated = ""
    return ServerVersion(one_line(info.git_version, _LONGEST), one_line(emulated, _LONGEST))


def log_notice(notice: VersionNotice) -> None:
    """Log the notice."""
    getattr(log, notice.level)(notice.event, **notice.fields)


async def tell(ask: Read, features: Sequence[Feature], say: Say = log_notice) -> None:
    """Log the server's version and its disabled features; or, once, that the version cannot be read.

    Runs alongside the start, which does not wait for it. After a definite rejection, it does not ask again.
    """
    for attempt in itertools.count(1):
        try:
            announced = await ask()
        except ApiError as error:
            # If the server is unreachable, the watches log the same failure; otherwise it is logged at the second
            # attempt.
            definite = isinstance(error, ApiRejected) and error.status != HTTPStatus.UNAUTHORIZED
            if attempt == _SAID_AT or (definite and attempt < _SAID_AT):
                say(versions.unknown("kube-apiserver", error.message))
            if definite:
                return
        else:
            for line in versions.of_server(announced, features):
                say(line)
            return
        await asyncio.sleep(_AGAIN_S)
