"""An address to listen on, as host:port. Pure."""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator

_LISTEN: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]*):([0-9]{1,5})")
_HIGHEST_PORT: Final = 65_535


def checked_address(text: str) -> str:
    """`text` as it stands, if it is host:port; an IPv6 host in brackets, an empty host for all addresses.

    Raises ValueError otherwise.
    """
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[2]) > _HIGHEST_PORT:
        raise ValueError(f"expected host:port such as 0.0.0.0:10262 or [::1]:10262, found {text[:80]!r}")
    return text


def host_and_port(address: str) -> tuple[str, int]:
    """Host ("" for all addresses; IPv6 without its brackets) and port of an address that has been checked."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


Address: TypeAlias = Annotated[str, AfterValidator(checked_address)]
