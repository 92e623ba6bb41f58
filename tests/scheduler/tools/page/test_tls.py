"""The certificate of the page's server."""

import asyncio
import contextlib
import os
import ssl
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from scheduler.tools.page.access import Everybody
from scheduler.tools.page.history import UsageHistory
from scheduler.tools.page.server import serve_page
from scheduler.tools.page.tls import ServerCertificate
from tests.scheduler.tools.page.browser import parts_of, serving
from tests.support.builders import engine
from tests.support.servers.byte_server import made_certificate


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    return [made_certificate(tmp_path_factory.mktemp(name)) for name in ("first", "second")]


def written(pair: tuple[Path, Path], folder: Path, *, moment: int) -> tuple[Path, Path]:
    """Copied, with that time of change."""
    own = folder / "tls.crt", folder / "tls.key"
    for source, target in zip(pair, own, strict=True):
        target.write_bytes(source.read_bytes())
        os.utime(target, ns=(moment, moment))
    return own


async def shown(port: int) -> bytes | None:
    """The certificate that a client is shown."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anybody)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert isinstance(found, bytes)
    return found


def plain(pem: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.read_text())


async def test_what_ends_the_history_by_a_bug_is_told() -> None:
    class Broken(UsageHistory):
        async def run(self) -> None:
            bug = "a bug"
            raise KeyError(bug)

    made = engine()
    parts = parts_of(made, Everybody())
    broken = Broken(made.tables, made.queue.lengths, lambda: 0.0)
    with capture_logs() as logs:
        page = await serve_page(replace(parts, history=broken), ("127.0.0.1", 0))
        await asyncio.sleep(0.01)
    await page.close()

    assert [(line["event"], line["task"], repr(line["exc_info"])) for line in logs] == [
        ("page.task_failed", "history", "KeyError('a bug')")
    ]


async def test_connections_that_never_begin_the_handshake_have_their_number(
    pairs: list[tuple[Path, Path]], tmp_path: Path
) -> None:
    certificate = ServerCertificate(*written(pairs[0], tmp_path, moment=1))
    page = await serving(engine(), Everybody(), tls=certificate.context)
    silent = [await asyncio.open_connection("127.0.0.1", page.port) for _ in range(60)]

    async with asyncio.timeout(3):
        for reader, _ in silent[:12]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert await shown(page.port) == plain(pairs[0][0])

    for _, writer in silent:
        writer.transport.abort()
    await page.close()


async def test_it_serves_by_tls_and_a_new_pair_is_used(pairs: list[tuple[Path, Path]], tmp_path: Path) -> None:
    certificate = ServerCertificate(*written(pairs[0], tmp_path, moment=1))
    page = await serving(engine(), Everybody(), tls=certificate.context)
    assert await shown(page.port) == plain(pairs[0][0])
    # Half of a pair is not used.
    (tmp_path / "tls.key").write_bytes(pairs[1][1].read_bytes())
    await certificate.look()
    assert await shown(page.port) == plain(pairs[0][0])
    assert certificate.fingerprint == sha256(plain(pairs[0][0])).digest()
    written(pairs[1], tmp_path, moment=2)
    await certificate.look()
    assert await shown(page.port) == plain(pairs[1][0])
    assert certificate.fingerprint == sha256(plain(pairs[1][0])).digest()
    async with aiohttp.ClientSession() as session:
        trusted = ssl.create_default_context(cafile=str(pairs[1][0]))
        trusted.check_hostname = False
        async with session.get(f"https://127.0.0.1:{page.port}/api/history", ssl=trusted) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{page.port}/")
    await page.close()


async def test_the_fingerprint_of_a_chain_is_that_of_the_certificate_that_is_shown(
    pairs: list[tuple[Path, Path]], tmp_path: Path
) -> None:
    cert, key = written(pairs[0], tmp_path, moment=1)
    cert.write_text(f"Of the page\n{pairs[0][0].read_text()}{pairs[1][0].read_text()}")
    assert ServerCertificate(cert, key).fingerprint == sha256(plain(pairs[0][0])).digest()


@pytest.mark.parametrize("wrong", ["", "no certificate"])
def test_files_that_are_no_pair_are_an_error_at_the_start(
    pairs: list[tuple[Path, Path]], tmp_path: Path, wrong: str
) -> None:
    cert, key = written(pairs[0], tmp_path, moment=1)
    cert.write_text(wrong)
    with pytest.raises(OSError, match=r".+"):
        ServerCertificate(cert, key)
    with pytest.raises(FileNotFoundError):
        ServerCertificate(tmp_path / "none", key)
