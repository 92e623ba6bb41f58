"""How to reach one API server as one user."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs.

    url: without a path. authorization: value of that header; None: the TLS context has a client
    certificate instead.
    """

    url: str
    tls: ssl.SSLContext
    authorization: str | None
