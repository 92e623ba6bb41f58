"""The TLS context of new connections, and how it follows the files that it is made of.

    (none) ──read──▶ IN USE ──read, the files have changed and are whole──▶ another one IN USE
                       └─────read, a file is not whole, or the key not that of the certificate──▶ IN USE, as before

A context is never changed: one that has half of a new pair is worse than an old one, and a CA cannot be taken out of
it. Why, and what happens to the connections: docs/decisions/0052-certificates-are-read-again-and-requests-end-first.md.
"""

import hashlib
import ssl
from collections.abc import Iterable
from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject


class NotUsable(Exception):
    """No TLS context can be made of the files; the message names them."""


class Certificates:
    """The CA, client certificate and key that one Configuration names."""

    def __init__(self, configuration: Configuration) -> None:
        """Nothing is read yet."""
        self._configuration = configuration
        self._made_of: tuple[object, ...] | None = None
        self._tls: ssl.SSLContext

    @property
    def tls(self) -> ssl.SSLContext:
        """For the next connection; after the first `read`."""
        return self._tls

    def read(self) -> bool:
        """Whether `tls` is another one than before. Raises NotUsable: it stays as it was."""
        to_read = self._configuration
        try:
            # Before the context: what is written in between makes the next call see a difference.
            now = (to_read.verify_ssl, *digests((to_read.ssl_ca_cert, to_read.cert_file, to_read.key_file)))
            if now == self._made_of:
                return False
            tls = RESTClientObject(to_read).ssl_context
        except (ssl.SSLError, OSError, ValueError) as error:
            files = f"CA {to_read.ssl_ca_cert}, client certificate {to_read.cert_file}"
            message = f"not usable as PEM ({files}): {error}; correct certificate-authority or client-certificate"
            raise NotUsable(message) from error
        again = self._made_of is not None
        self._tls, self._made_of = tls, now
        return again


def digests(files: Iterable[str | Path | None]) -> tuple[bytes | None, ...]:
    """SHA-256 of what each holds: they say that a secret has changed without keeping it. Raises OSError."""
    return tuple(hashlib.sha256(Path(file).read_bytes()).digest() if file else None for file in files)
