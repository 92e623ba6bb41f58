"""The page `/status`, and its client. It names pods, so only this machine may read it."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec
from aiohttp import web

from deviceplugin.report.status import DevicePluginStatus, decode, encode
from scheduler.process.documents import on_this_machine
from scheduler.process.http_server import Handler

_ANSWER_S: Final = 5.0


class StatusUnknown(Exception):
    """The status is unknown; the message names the address and the answer."""


def status_page(status: Callable[[], DevicePluginStatus]) -> Handler:
    """Return a handler of `/status`, for requests from this machine only."""

    async def handle(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=encode(status()), content_type="application/json")

    return on_this_machine(handle)


async def ask_status(address: str) -> DevicePluginStatus:
    """Return the status of the plugin at `address`, host:port on this machine. Raises StatusUnknown."""
    url = f"http://{address}/status"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session,
            session.get(url) as answer,
        ):
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise StatusUnknown(f"{url}: {error or 'no answer in time'}; is the plugin running here?") from error
    if answer.status != HTTPStatus.OK:
        raise StatusUnknown(f"{url}: answered {answer.status} {body[:200].decode(errors='replace').strip()}")
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StatusUnknown(f"{url}: the answer is not a valid status: {error}") from error
