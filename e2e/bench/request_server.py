"""Answers every request over TLS as the API server answers a Binding; writes its port, and ends with its parent.

python -m e2e.bench.request_server CERTIFICATE KEY
"""

import asyncio
import ssl
import sys
from typing import Final, cast

import uvloop

_BODY: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
_UID: Final = b"aaaaaaaa-0000-0000-0000-000000000000"
_HEADERS: Final = (
    b"HTTP/1.1 201 Created",
    b"Audit-Id: " + _UID,
    b"Cache-Control: no-cache, private",
    b"Content-Type: application/json",
    b"X-Kubernetes-Pf-Flowschema-Uid: " + _UID,
    b"X-Kubernetes-Pf-Prioritylevel-Uid: " + _UID,
    b"Date: Sun, 22 Nov 2026 15:00:00 GMT",
    b"Content-Length: %d" % len(_BODY),
)
_ANSWER: Final = b"\r\n".join((*_HEADERS, b"", _BODY))
_LENGTH: Final = b"content-length: "


class _Answering(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[: end + 2].lower()
            end += 4 + int(head.partition(_LENGTH)[2].partition(b"\r\n")[0])
            if len(self._received) < end:
                return
            self._received = self._received[end:]
            self._transport.write(_ANSWER)


async def _serve(certificate: str, key: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answering, "127.0.0.1", 0, ssl=tls)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)  # its parent holds the other end


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
