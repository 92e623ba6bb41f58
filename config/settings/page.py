"""Settings of the web page: whether and where it is served. Pure."""

import ipaddress
from typing import Final, Self

from pydantic import Field, model_validator

from config.settings.schema import Address, Section, host_and_port

_LOOPBACK_NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Return whether only programs of the same machine or pod can reach it. host: "" for all addresses."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOOPBACK_NAME


class PageSection(Section):
    """The [web page](page.md)."""

    enabled: bool = Field(
        default=False,
        description="Serve the page. To check viewers' tokens, the service account then needs the rights of "
        "`deploy/optional/page.yaml`.",
    )
    listen: Address = Field(
        default="127.0.0.1:10264",
        description="Address and port of the page. Port 0: any free port. Reach the default with `kubectl "
        "port-forward`, which encrypts. Any address other than loopback requires `certFile` and `keyFile`. If the "
        "page listens on all addresses (`:10264`) or on the pod's, a standby gets its answers from the leader.",
    )
    cert_file: str = Field(default="", description="Certificate of the page with its chain, in PEM format.")
    key_file: str = Field(default="", description="Private key of the certificate, in PEM format.")

    @model_validator(mode="after")
    def _no_token_in_the_clear(self) -> Self:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("expected both certFile and keyFile, or neither")
        host, _ = self.listen_address
        if not self.cert_file and not is_loopback(host):
            raise ValueError(
                f"expected a loopback address such as 127.0.0.1:10264, or certFile and keyFile, found {self.listen}: "
                "tokens would go over the network unencrypted"
            )
        return self

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host ("" for all addresses; an IPv6 address without its brackets) and port of `listen`."""
        return host_and_port(self.listen)
