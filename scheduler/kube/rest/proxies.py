"""HTTP proxies as the environment names them, looked up once: aiohttp would do so, in a thread, for every request."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def from_environment(environment: Mapping[str, str], url: str) -> str | None:
    """Return the proxy for `url` by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, or None.

    NO_PROXY: hosts, domains and, as in kubectl, networks (10.0.0.0/8).
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    named = {name.lower().removesuffix("_proxy"): value for name, value in environment.items() if _is_proxy(name)}
    if any(_covers(entry.strip().lower(), host) for entry in named.get("no", "").split(",")):
        return None
    return named.get(parts.scheme) or named.get("all") or None


def _is_proxy(name: str) -> bool:
    return name.lower().endswith("_proxy")


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY means this host."""
    domain = entry.removeprefix("*").removeprefix(".")
    if entry == "*" or (domain and (host == domain or host.endswith(f".{domain}"))):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
