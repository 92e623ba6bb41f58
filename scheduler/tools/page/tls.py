"""Certificate of the page's server, reloaded while it serves."""

import asyncio
import re
import ssl
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog

_EVERY_S: Final = 60.0
_FIRST: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
log = structlog.get_logger()


class ServerCertificate:
    """A certificate and its key, in files. context: for new connections. fingerprint: SHA-256 of the certificate."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        """Raises OSError (ssl.SSLError is one) for files that cannot be read, or do not match."""
        self._cert_file, self._key_file = cert_file, key_file
        self._seen = self._stamp()
        self.context = self._loaded()
        self.fingerprint = self._digest()

    async def run(self) -> None:
        """Reload the files until cancelled. A pair that does not match is ignored and logged."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Reload the files if they have changed."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            # First into another context: if only one file is new, the server would otherwise have half of a pair.
            await asyncio.to_thread(self._loaded)
            self.context.load_cert_chain(self._cert_file, self._key_file)
            self.fingerprint = self._digest()
        except OSError as error:
            log.warning("page.certificate_not_renewed", reason=str(error))
        else:
            self._seen = stamp

    def _stamp(self) -> tuple[int, int]:
        return self._cert_file.stat().st_mtime_ns, self._key_file.stat().st_mtime_ns

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._cert_file, self._key_file)
        return context

    def _digest(self) -> bytes:
        """Return the digest of the first certificate in the file, which is the one that the server presents."""
        found = _FIRST.search(self._cert_file.read_text(encoding="ascii", errors="replace"))
        return sha256(ssl.PEM_cert_to_DER_cert(found[0]) if found else b"").digest()
