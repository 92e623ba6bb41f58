"""Where the API server is: which of several places says so, and what is said of one that says it wrong.

That a whole kubeconfig is used as kubectl uses it, or refused by name, is shown in e2e/suites/api/test_kubeconfigs.py.
"""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.kube.rest.client_config.chosen_context import chosen, proxy_for
from scheduler.kube.rest.client_config.connect import ConnectError, Connection, connect
from scheduler.kube.rest.client_config.credentials import NotRenewed
from scheduler.kube.rest.client_config.kubeconfig_file import read
from scheduler.kube.rest.client_config.overrides import Overrides
from tests.support.servers.certificates import CA

SERVER = "https://10.1.2.3:6443"
PROXY = "http://proxy:3128"
BEARER = (("Authorization", "Bearer t"),)
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def document(server: str = "http://a", **parts: object) -> dict[str, Any]:
    return {
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c2", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": server}},
            {"name": "c2", "cluster": {"server": f"{server}-2"}},
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
    } | parts


def described(user: dict[str, Any] | None = None, **cluster: object) -> dict[str, Any]:
    """A kubeconfig whose cluster is at https://a, unless it says otherwise; `_` for `-`."""
    fields = {key.replace("_", "-"): value for key, value in {"server": "https://a", **cluster}.items()}
    users = [{"name": "u", "user": user or {"token": "t"}}]
    return document(clusters=[{"name": "c", "cluster": fields}], users=users)


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    write(tmp_path / "sa" / "token", "pod-token")
    return write(tmp_path / "sa" / "ca.crt", CA).parent


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write(tmp_path / "home" / ".kube" / "config", document("http://home")).parent.parent


async def connected(
    environment: Mapping[str, str],
    kubeconfig: Path | None = None,
    context: str | None = None,
    service_account: Path = Path("/nowhere"),
) -> Connection:
    return await connect(environment, kubeconfig=kubeconfig, context=context, service_account=service_account)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        pytest.param(("named", "KUBECONFIG", "pod", "HOME"), "http://named", id="the file that is named"),
        pytest.param(("KUBECONFIG", "pod", "HOME"), "http://env", id="KUBECONFIG of the environment"),
        pytest.param(("pod", "HOME"), "https://10.0.0.1:443", id="the service account of the pod"),
        pytest.param(("HOME",), "http://home", id="the home directory"),
    ],
)
async def test_the_first_place_that_says_something_wins(
    tmp_path: Path, home: Path, service_account: Path, given: tuple[str, ...], url: str
) -> None:
    named = write(tmp_path / "named", document("http://named"))
    environment = {"HOME": str(home), "KUBECONFIG": str(write(tmp_path / "env", document("http://env")))}

    connection = await connected(
        IN_A_POD | {name: path for name, path in environment.items() if name in given},
        kubeconfig=named if "named" in given else None,
        service_account=service_account if "pod" in given else Path("/nowhere"),
    )

    assert connection.url == url
    if "named" in given:
        assert connection.source == f"kubeconfig {named}, context main"


async def test_in_a_pod_the_token_is_that_of_the_service_account(service_account: Path) -> None:
    connection = await connected(IN_A_POD, service_account=service_account)

    assert await connection.credentials.identity() == (("Authorization", "Bearer pod-token"),)


@pytest.mark.parametrize(
    ("says", "namespace"),
    [({"namespace": "ml"}, "ml"), ({}, "default"), ({"namespace": ""}, "default"), ({"namespace": None}, "default")],
)
async def test_the_namespace_is_that_of_the_context(tmp_path: Path, says: dict[str, Any], namespace: str) -> None:
    contexts = [{"name": "main", "context": {"cluster": "c", "user": "u"} | says}]
    named = write(tmp_path / "named", document("http://named", contexts=contexts))

    assert (await connected({}, kubeconfig=named)).namespace == namespace


async def test_a_context_is_looked_up_in_a_file_and_not_in_the_pod(home: Path, service_account: Path) -> None:
    environment = IN_A_POD | {"HOME": str(home)}

    assert (await connected(environment, context="other", service_account=service_account)).url == "http://home-2"


@pytest.mark.parametrize(
    ("cluster", "proxy"),
    [({}, PROXY), ({"proxy-url": "http://another"}, "http://another")],
    ids=["of the environment", "of the kubeconfig"],
)
async def test_the_proxy_of_the_environment_serves_a_kubeconfig_that_names_none(
    tmp_path: Path, cluster: dict[str, str], proxy: str
) -> None:
    path = write(tmp_path / "config", described(None, server="https://a/", **cluster))

    connection = await connected({"HTTPS_PROXY": PROXY}, kubeconfig=path)

    assert (connection.url, connection.proxy) == ("https://a", proxy)


async def test_who_is_impersonated_follows_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "config", described({"token": "t", "as": "jane"}))
    credentials = (await connected({}, kubeconfig=path)).credentials
    user = {"token": "t", "as": "joe", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x/y": ["1", "2"]}}
    write(path, described(user))

    await credentials.load()

    assert await credentials.identity() == (
        *BEARER,
        ("Impersonate-User", "joe"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-x%2Fy", "1"),
        ("Impersonate-Extra-x%2Fy", "2"),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("a: [", "is not YAML.*correct it", id="not YAML"),
        pytest.param("just words", "is not a mapping", id="not a kubeconfig"),
        pytest.param("", r"no current-context is set.*\(none\)", id="empty"),
        pytest.param({"contexts": []}, "current-context.*\\(none\\)", id="no current context"),
        pytest.param(document(**{"current-context": "x"}), "no context x;.*one of: main, other", id="no such context"),
        pytest.param(document(clusters=[]), "the cluster c, which does not exist", id="no such cluster"),
        pytest.param(document(clusters=None), "the cluster c, which does not exist", id="clusters: null"),
        pytest.param(document(users=7), "users: Expected `array`, got `int`; correct it", id="users of another type"),
        pytest.param("a: 1\n---\nb: 1", "holds 2 documents", id="two documents"),
        pytest.param(
            described() | {"contexts": [{"name": "main", "context": {"cluster": "c"}}]},
            "has no credentials: token, tokenFile",
            id="no user",
        ),
        pytest.param(
            document(users=[{"user": {"token": "planted"}}]), r"users\[0\] has no name; correct it$", id="no name"
        ),
        pytest.param(described(server="https://a:planted"), "of the server cannot be read; expected", id="port"),
        pytest.param(described(server="https://a:0"), "address of the server has port 0", id="port 0"),
        pytest.param(described(server="https://[::1"), "address of the server cannot be read", id="half an address"),
        pytest.param(
            described(server="https://u:planted@a"), "contains a user; put the user and the password", id="a user"
        ),
        pytest.param(described(proxy_url="socks5://u:planted@p"), "the proxy .*SOCKS proxy", id="proxy"),
        pytest.param(
            described(proxy_url=True), r"clusters\[0\].cluster.proxy-url: Expected", id="a proxy that is no text"
        ),
        pytest.param(
            described(server=5),
            r"clusters\[0\].cluster.server: Expected `str`, got `int`",
            id="a server that is a number",
        ),
        pytest.param(described(tls_server_name=[1]), r"tls-server-name: Expected `str`", id="name"),
        pytest.param(described(certificate_authority_data="aGVsbG8="), "not usable as PEM", id="a CA"),
        pytest.param(
            described({"client-certificate": "no.crt", "client-key": "no.key"}), "no.crt", id="a client certificate"
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, content: object, message: str
) -> None:
    path = write(tmp_path / "config", content)

    with pytest.raises(ConnectError, match=message) as raised:
        await connected({}, kubeconfig=path)

    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param('"planted\\q"', id="no such escape"),
        pytest.param("planted: x", id="a mapping in a value"),
        pytest.param('"planted', id="a quote that is not closed"),
        pytest.param("*planted", id="no such anchor"),
        pytest.param("!planted x", id="no such tag"),
        pytest.param("%planted", id="a character that begins no value"),
        pytest.param("[planted]", id="another type"),
        pytest.param("[" * 100_000, id="nested deeper than any stack"),
    ],
)
async def test_a_kubeconfig_that_is_or_becomes_wrong_is_described_without_the_secret_in_it(
    tmp_path: Path, written: str
) -> None:
    path = write(tmp_path / "config", document())
    connection = await connected({}, kubeconfig=path)
    write(path, f"users:\n- name: u\n  user:\n    token: {written}\n")

    with pytest.raises(ConnectError) as at_the_start:
        await connected({}, kubeconfig=path)
    with pytest.raises(NotRenewed) as later:
        await connection.credentials.load()

    assert re.search(r"is not YAML|users\[0\]\.user\.token: Expected `str`", str(at_the_start.value))
    assert "planted" not in f"{at_the_start.value} {later.value}"
    await connection.credentials.close()


@pytest.mark.parametrize(
    ("kubeconfig", "message"),
    [
        pytest.param(Path("/no/such/file"), "/no/such/file, named by --kubeconfig", id="flag"),
        pytest.param(None, "/no/a, named by KUBECONFIG", id="environment"),
    ],
)
async def test_a_named_file_has_to_exist(home: Path, kubeconfig: Path | None, message: str) -> None:
    with pytest.raises(ConnectError, match=message):
        await connected({"HOME": str(home), "KUBECONFIG": "/no/a:/no/b"}, kubeconfig=kubeconfig)


async def test_a_directory_is_not_a_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="cannot be read"):
        await connected({}, kubeconfig=tmp_path)


async def test_without_any_cluster_every_place_searched_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"--kubeconfig.*KUBECONFIG.*/nowhere.*/\.kube/config"):
        await connected({"HOME": str(tmp_path)})


async def test_a_broken_ca_of_the_service_account_is_an_error(service_account: Path) -> None:
    write(service_account / "ca.crt", "no certificate")

    with pytest.raises(ConnectError, match=r"service account.*not usable as PEM"):
        await connected(IN_A_POD, service_account=service_account)


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        pytest.param({}, SERVER, None, id="none"),
        pytest.param({"HTTPS_PROXY": PROXY}, SERVER, PROXY, id="https"),
        pytest.param({"https_proxy": PROXY}, SERVER, PROXY, id="small letters"),
        pytest.param({"HTTP_PROXY": PROXY}, SERVER, None, id="for http only"),
        pytest.param({"HTTP_PROXY": PROXY}, "http://api", PROXY, id="http"),
        pytest.param({"ALL_PROXY": PROXY}, SERVER, None, id="not for kubectl either"),
        pytest.param({"HTTPS_PROXY": PROXY, "https_proxy": "http://b"}, SERVER, PROXY, id="capital letters win"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, SERVER, None, id="no host"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "a, 10.1.2.3"}, SERVER, None, id="not this host"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, SERVER, None, id="not this network"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.2.0.0/16"}, SERVER, PROXY, id="not another network"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": ".corp"}, "https://api.corp", None, id="not this domain"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "orp"}, "https://api.corp", PROXY, id="not half a name"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": ","}, SERVER, PROXY, id="empty entries"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://127.0.0.1:6443", None, id="not this machine"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://[::1]:6443", None, id="not this machine by IPv6"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://localhost:6443", None, id="not this machine by name"),
    ],
)
def test_the_proxy_is_the_one_that_the_environment_names(
    environment: dict[str, str], url: str, proxy: str | None
) -> None:
    assert proxy_for(environment, url) == proxy


# kubectl's flags


OVERRIDDEN = [
    pytest.param({"cluster": "c2"}, "https://a-2", BEARER, id="another cluster of the file"),
    pytest.param({"server": "https://b"}, "https://b", BEARER, id="another server, with the user's token"),
    pytest.param(
        {"impersonate": "jane", "impersonate_uid": "7", "impersonate_groups": ("dev",)},
        "https://a",
        (*BEARER, ("Impersonate-User", "jane"), ("Impersonate-Uid", "7"), ("Impersonate-Group", "dev")),
        id="another user to act as",
    ),
]


@pytest.mark.parametrize(("flags", "url", "headers"), OVERRIDDEN)
async def test_a_flag_wins_over_the_kubeconfig(
    tmp_path: Path, flags: dict[str, Any], url: str, headers: tuple[tuple[str, str], ...]
) -> None:
    file = write(tmp_path / "k", document("https://a"))
    found = await connect({}, kubeconfig=file, overrides=Overrides(**flags))
    assert (found.url, await found.credentials.identity()) == (url, headers)


async def test_flags_alone_are_enough(tmp_path: Path) -> None:
    flags = Overrides(server="https://10.1.2.3:6443", token="t", insecure_skip_tls_verify=True)  # noqa: S106 - of a test
    found = await connect({"HOME": str(tmp_path)}, service_account=None, overrides=flags)
    assert (found.url, found.namespace) == ("https://10.1.2.3:6443", "default")
    assert await found.credentials.identity() == (("Authorization", "Bearer t"),)


async def test_a_token_of_a_flag_replaces_the_credentials_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "k", described({"username": "u", "password": "p"}))
    found = await connect({}, kubeconfig=file, overrides=Overrides(token="t"))  # noqa: S106 - of a test
    assert await found.credentials.identity() == (("Authorization", "Bearer t"),)


def test_a_certificate_of_a_flag_replaces_that_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "k", described({"client-certificate": "/old.crt", "client-key-data": "a2V5"}))
    flags = Overrides(client_certificate="/new.crt", client_key="/new.key", tls_server_name="api.example")
    found = chosen(read([file]), None, flags)
    assert (found.user.client_certificate, found.user.client_key, found.user.client_key_data) == (
        "/new.crt",
        "/new.key",
        "",
    )
    assert found.cluster.tls_server_name == "api.example"


async def test_not_to_verify_the_server_replaces_the_ca_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "k", described(certificate_authority=str(write(tmp_path / "ca.crt", CA))))
    found = await connect({}, kubeconfig=file, overrides=Overrides(insecure_skip_tls_verify=True))
    assert found.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cluster": "none"}, "names the cluster none, which does not exist"),
        ({"user": "none"}, "names the user none, which does not exist"),
        ({"impersonate_groups": ("dev",)}, "need a user to impersonate"),
        ({"server": "b"}, "the address of the server does not begin with"),
    ],
)
async def test_a_flag_that_cannot_be_used_is_an_error(tmp_path: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConnectError, match=message):
        await connect({}, kubeconfig=write(tmp_path / "k", described()), overrides=Overrides(**flags))


async def test_flags_choose_a_kubeconfig_and_not_the_pod(home: Path, service_account: Path) -> None:
    found = await connect(
        {**IN_A_POD, "HOME": str(home)}, service_account=service_account, overrides=Overrides(impersonate="jane")
    )
    assert found.url == "http://home"
