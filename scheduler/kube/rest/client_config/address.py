"""Destination of requests: the server's address, the expected name in its certificate, and a proxy. Pure."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_SCHEMES: Final = ("http", "https")


class BadAddress(Exception):
    """An unusable address; the message says why, without the address: it may contain a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An API server. url: without a slash at the end, may have a path. server_name: instead of the host of `url`."""

    url: str
    server_name: str | None = None
    proxy: str | None = None

    @property
    def encrypted(self) -> bool:
        """Whether requests go over TLS. Without, as with kubectl, no credentials are sent."""
        return self.url.startswith("https:")


def server_url(written: str) -> str:
    """The address as requests use it: without its query and a slash at the end. Raises BadAddress."""
    _check(written, "such as https://10.0.0.1:6443")
    parts = urlsplit(written)
    if parts.fragment:
        raise BadAddress("has a #; remove it and what follows")
    if parts.username is not None:
        raise BadAddress("has a user in it; put the user and the password under users")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def check_proxy(url: str) -> None:
    """Raise BadAddress where no requests can be sent through it."""
    if url.lower().startswith("socks"):
        raise BadAddress("is that of a SOCKS proxy, which is not supported; name an HTTP proxy")
    _check(url, "such as http://proxy.example:3128")


def _check(url: str, example: str) -> None:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise BadAddress(f"cannot be read; expected one {example}") from None
    if parts.scheme not in _SCHEMES or not host:
        raise BadAddress(
            f"does not begin with {' or '.join(f'{one}://' for one in _SCHEMES)} and a host; expected one {example}"
        )
    if port == 0 or not url.isprintable() or " " in url:
        raise BadAddress("has port 0, or characters that no address has")


def proxy_for(environment: Mapping[str, str], url: str) -> str | None:
    """Return the proxy for `url` by HTTPS_PROXY, HTTP_PROXY and NO_PROXY as kubectl reads them, or None.

    Called once per connection: aiohttp would look it up, in a thread, for every request.
    NO_PROXY: hosts, domains and networks (10.0.0.0/8). Never for this machine itself.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""

    def named(name: str) -> str:
        return environment.get(name.upper()) or environment.get(name) or ""

    if _is_this_machine(host) or any(_covers(one.strip().lower(), host) for one in named("no_proxy").split(",")):
        return None
    return named(f"{parts.scheme}_proxy") or None


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY means this host."""
    domain = entry.removeprefix("*").removeprefix(".")
    if entry == "*" or (domain and (host == domain or host.endswith(f".{domain}"))):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
