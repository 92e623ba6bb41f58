"""The TLS context of new connections, replaced when its certificates change.

    (none) ──follow──▶ IN USE ──follow, other valid certificates──▶ another one IN USE
                         └─────follow, a file is incomplete, or key and certificate differ──▶ IN USE, as before

A context is never changed: half of a new pair would be worse than the old pair, and a CA cannot be removed from a
context. For the reasons, and what happens to connections, see
docs/develop/decisions/0052-reread-certificates-and-let-requests-finish.md.
"""

import hashlib
import re
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NONE: Final = "it contains no certificate"
_ENCRYPTED: Final = "the private key is encrypted; write it without a password"


class NotUsable(Exception):
    """The certificates yield no TLS context; the message names their source."""


@dataclass(frozen=True, slots=True)
class Pem:
    """Text of a certificate or key, and where it comes from, for messages."""

    text: bytes
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Input of a TLS context. ca: None for the system's CAs. certificate, key: the client's, both or neither.

    verify: whether the server's certificate is verified.
    """

    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """A new context. Raises ssl.SSLError, OSError, ValueError."""
        tls = ssl.create_default_context(cadata=_usable(self.ca.text) if self.ca else None)
        # As in Go: CAs without an authority key identifier are accepted, an intermediate CA may be trusted, and host
        # names are matched with alternative names only.
        tls.hostname_checks_common_name = False
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.certificate and self.key:
            _load_pair(tls, self.certificate.text, self.key.text)
        if not self.verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        return tls

    def digest(self) -> tuple[object, ...]:
        """Digest that detects a changed secret without storing it."""
        texts = (one.text if one else None for one in (self.ca, self.certificate, self.key))
        return (self.verify, *(None if text is None else hashlib.sha256(text).digest() for text in texts))


class Certificates:
    """The TLS context for the latest usable material."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] | None = None
        self._tls: ssl.SSLContext

    @property
    def tls(self) -> ssl.SSLContext:
        """Context for the next connection. Valid after the first `follow`."""
        return self._tls

    def follow(self, material: TlsMaterial) -> bool:
        """Use this material, and return whether it replaced `tls`. Raises NotUsable, and then keeps `tls`."""
        now = material.digest()
        if now == self._made_of:
            return False
        try:
            tls = material.context()
        except (ssl.SSLError, OSError, ValueError) as error:
            sources = ", ".join(one.source for one in (material.ca, material.certificate, material.key) if one)
            message = f"not usable as PEM ({sources}): {error}; correct certificate-authority or client-certificate"
            raise NotUsable(message) from error
        again = self._made_of is not None
        self._tls, self._made_of = tls, now
        return again


def digests(files: Iterable[Path]) -> tuple[bytes, ...]:
    """SHA-256 of each file's content. Raises OSError."""
    return tuple(hashlib.sha256(file.read_bytes()).digest() for file in files)


def _usable(bundle: bytes) -> str:
    """The readable certificates of a bundle; unreadable ones are skipped, as in Go. Raises if none is readable."""
    found = list[str]()
    problem: ssl.SSLError | ValueError = ValueError(_NONE)
    for one in _CERTIFICATE.findall(bundle):
        text = one.decode("ascii", "replace")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            problem = error
        else:
            found.append(text)
    if not found:  # otherwise ssl would use the system's CAs
        raise problem
    return "\n".join(found)


def _load_pair(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load the pair from private temporary files: OpenSSL accepts nothing else."""
    with tempfile.TemporaryDirectory(prefix="gpushare-") as folder:
        files = Path(folder, "certificate"), Path(folder, "key")
        for file, text in zip(files, (certificate, key), strict=True):
            file.write_bytes(text)
        # Without a password function, OpenSSL prompts on the terminal.
        tls.load_cert_chain(*files, password=_refuse_password)


def _refuse_password() -> str:
    raise ValueError(_ENCRYPTED)
