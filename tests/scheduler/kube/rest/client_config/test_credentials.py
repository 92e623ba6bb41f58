import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest
from aiohttp import web

from scheduler.kube import port
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.client_config.credentials import Credentials, Headers, Lifetime, Loaded, NotRenewed
from scheduler.kube.rest.transport import Transport
from tests.scheduler.kube.rest.conftest import Send, by_session
from tests.support.servers.api_server import BOUND, ApiServer, Json, streamed
from tests.support.servers.byte_server import made_certificate
from tests.support.servers.certificates import CA

TransportOf = Callable[[Json], Awaitable[Transport]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made_certificate(tmp_path_factory.mktemp("server"))


@pytest.fixture
async def api(certificate: tuple[Path, Path]) -> AsyncIterator[ApiServer]:
    """With TLS: no credentials are sent without."""
    async with ApiServer().serving(certificate) as server:
        yield server


@pytest.fixture
def transport_of(kubeconfig: Callable[..., Path]) -> TransportOf:
    async def make(user: Json) -> Transport:
        return Transport(await connect({}, kubeconfig=kubeconfig(user)), connections=8)

    return make


def sent(api: ApiServer) -> list[str]:
    return [seen.headers["Authorization"] for seen in api.seen]


def bearer(token: str) -> Headers:
    return (("Authorization", f"Bearer {token}"),)


def plugin(tmp_path: Path, life_s: int, answer: str = "") -> Json:
    """A credential plugin: token-1, token-2, … each good for `life_s`; when it ran, its start, stands in `runs`."""
    script = tmp_path / "plugin.py"
    text = f"""
        import datetime, json, os, pathlib, time
        runs = pathlib.Path({str(tmp_path / "runs")!r})
        with runs.open("a") as file:
            file.write(f"{{time.time()}}\\n")
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds={life_s})
        status = {{"token": f"token-{{len(runs.read_text().splitlines())}}", "expirationTimestamp": end.isoformat()}}
        {answer}
        version = "client.authentication.k8s.io/v1"
        print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
    """
    script.write_text(dedent(text), encoding="utf-8")
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "python3",
            "args": [str(script)],
            "env": [{"name": "KUBECONFIG", "value": os.devnull}],
            "interactiveMode": "Never",
        }
    }


@pytest.mark.parametrize("broken", ["planted\nx", "planted\rx", "planted\0", "plantedé"])
async def test_a_token_that_no_header_may_have_leaves_the_one_before_in_use(
    api: ApiServer, kubeconfig: Callable[..., Path], send: Send, tmp_path: Path, broken: str
) -> None:
    file = tmp_path / "token"
    file.write_text("token-0\n", encoding="utf-8")
    connection = await connect({}, kubeconfig=kubeconfig({"tokenFile": str(file)}))
    transport = Transport(connection, connections=8)
    file.write_bytes(broken.encode())

    with pytest.raises(NotRenewed, match="the token has characters that are invalid in a header") as raised:
        await connection.credentials.load()
    await send(transport)

    await transport.close()
    assert "planted" not in str(raised.value)
    assert sent(api) == ["Bearer token-0"]


async def test_the_token_of_a_service_account_that_is_rotated_costs_no_request(api: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old", encoding="utf-8")
    (tmp_path / "ca.crt").write_text(CA, encoding="utf-8")
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    credentials = (await connect(environment, service_account=tmp_path)).credentials
    before = await credentials.identity()

    (tmp_path / "token").write_text("new", encoding="utf-8")
    await credentials.renew(before, credentials.tls)

    assert (before, await credentials.identity()) == (bearer("old"), bearer("new"))
    assert api.seen == []


async def test_an_exec_credential_with_five_seconds_of_life_is_renewed_before_it_ends(
    api: ApiServer, transport_of: TransportOf, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    answers: list[int] = []

    async def only_living(request: web.Request) -> web.StreamResponse:
        number = int(request.headers["Authorization"].rpartition("-")[2])
        issued_s = float(runs.read_text(encoding="utf-8").splitlines()[number - 1])
        # A request may be under way for a while on a busy machine; who waits for a refusal is refused all the same.
        answers.append(200 if time.time() < issued_s + 8.0 else 401)
        return web.json_response(BOUND, status=answers[-1])

    transport = await transport_of(plugin(tmp_path, life_s=5))
    async with asyncio.timeout(30):
        while "Bearer token-2" not in sent(api):
            api.script = [only_living]
            await by_session(transport)
            await asyncio.sleep(0.1)

    await transport.close()
    assert set(answers) == {200}


async def test_requests_go_on_with_a_living_credential_while_the_next_one_is_fetched(
    api: ApiServer, transport_of: TransportOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    waits = f"while len(runs.read_text().splitlines()) > 1 and not os.path.exists({str(go)!r}): time.sleep(0.01)"
    with monkeypatch.context() as first_only:
        first_only.setattr("scheduler.kube.rest.client_config.kubeconfig._SPENT", 0.0)
        transport = await transport_of(plugin(tmp_path, life_s=60, answer=waits))
    try:
        async with asyncio.timeout(20):
            for _ in range(5):
                await by_session(transport)
        meanwhile = sent(api)
    finally:
        go.touch()
    async with asyncio.timeout(20):
        while "Bearer token-2" not in sent(api):
            await by_session(transport)

    await transport.close()
    assert meanwhile == ["Bearer token-1"] * 5
    assert len((tmp_path / "runs").read_text(encoding="utf-8").splitlines()) == 2


async def test_a_credential_that_is_refused_before_its_end_is_renewed_once(
    api: ApiServer, transport_of: TransportOf, send: Send, tmp_path: Path
) -> None:
    transport = await transport_of(plugin(tmp_path, life_s=3600))
    api.tokens = {"token-2"}

    await asyncio.gather(*(send(transport) for _ in range(5)))

    await transport.close()
    assert len((tmp_path / "runs").read_text(encoding="utf-8").splitlines()) == 2
    assert sent(api).count("Bearer token-2") == 5


async def test_a_watch_that_is_refused_renews_too(api: ApiServer, transport_of: TransportOf, tmp_path: Path) -> None:
    transport = await transport_of(plugin(tmp_path, life_s=3600))
    api.tokens, api.script = {"token-2"}, [streamed(b"hello")]

    async with transport.stream("/x", stall_s=5.0) as chunks:
        assert [chunk async for chunk in chunks] == [b"hello"]
    await transport.close()


async def test_a_plugin_that_begins_to_fail_is_named_with_its_message(
    api: ApiServer, transport_of: TransportOf, send: Send, tmp_path: Path
) -> None:
    broken = "if len(runs.read_text().splitlines()) > 1: raise SystemExit('your login has expired')"
    transport = await transport_of(plugin(tmp_path, life_s=3600, answer=broken))
    api.tokens = set()

    with pytest.raises(port.ApiForbidden, match="your login has expired") as raised:
        await send(transport)

    await transport.close()
    assert raised.value.status == 401


class Slow:
    """A source that loads when `go` is set; loads: how often it was asked."""

    def __init__(self, lifetime: Lifetime) -> None:
        self.go = asyncio.Event()
        self.loads = 0
        self.fails = False
        self.lifetime = lifetime

    async def load(self) -> Loaded:
        self.loads += 1
        await self.go.wait()
        if self.fails:
            message = "no"
            raise NotRenewed(message)
        return Loaded(authorization=f"Bearer {self.loads}", lifetime=self.lifetime)


EXPIRED: Final = Lifetime(refresh_after_s=-2.0, valid_for_s=-1.0)


async def loaded(lifetime: Lifetime) -> tuple[Slow, Credentials]:
    """Credentials after their first load; the next ones do not wait."""
    source = Slow(lifetime)
    source.go.set()
    credentials = Credentials(source)
    await credentials.load()
    return source, credentials


async def test_a_renewal_outlives_the_request_that_started_it() -> None:
    source = Slow(Lifetime())
    credentials = Credentials(source)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await credentials.load()

    source.go.set()
    await credentials.load()

    assert (source.loads, await credentials.identity()) == (1, bearer("1"))


async def test_a_request_that_was_refused_with_older_credentials_only_repeats() -> None:
    source, credentials = await loaded(Lifetime())

    await credentials.renew(bearer("0"), credentials.tls)

    assert source.loads == 1


async def test_expired_credentials_are_waited_for() -> None:
    _, credentials = await loaded(EXPIRED)

    assert await credentials.identity() == bearer("2")


async def test_credentials_that_cannot_be_renewed_are_used_and_retried_rarely() -> None:
    source, credentials = await loaded(EXPIRED)
    source.fails = True

    assert [await credentials.identity() for _ in range(3)] == [bearer("1")] * 3
    assert source.loads == 2
