"""The headers that ask the API server to act as another user (`as` in a kubeconfig). Pure.

Source: client-go, transport/round_trippers.go, NewImpersonatingRoundTripper.
"""

import string
from typing import Final, TypeAlias

from scheduler.kube.rest.client_config.kubeconfig_file import KubeconfigUser

# Name and value; a name may come more than once.
Headers: TypeAlias = tuple[tuple[str, str], ...]
# RFC 9110, token; without the percent sign, which begins an escape.
_OF_A_NAME: Final = frozenset((string.ascii_letters + string.digits + "!#$&'*+-.^_`|~").encode())


def impersonation(user: KubeconfigUser) -> Headers:
    """The headers, none without impersonation."""
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
    """Whether it can be the value of a header: no control characters but tabs (Go: ValidHeaderFieldValue)."""
    return all(char == "\t" or (char >= " " and char != "\x7f") for char in value)


def _escaped(key: str) -> str:
    """The key of an extra as part of a header's name: other bytes percent-encoded."""
    return "".join(chr(byte) if byte in _OF_A_NAME else f"%{byte:02X}" for byte in key.encode())
