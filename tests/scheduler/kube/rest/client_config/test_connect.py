import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.kube.rest.client_config.chosen_context import proxy_for
from scheduler.kube.rest.client_config.connect import ConnectError, Connection, connect
from scheduler.kube.rest.client_config.credentials import NotRenewed
from tests.support.servers.certificates import CA

SERVER = "https://10.1.2.3:6443"
PROXY = "http://proxy:3128"
BEARER = (("Authorization", "Bearer t"),)
VERSION = "client.authentication.k8s.io/v1"
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


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


def plugin(command: str, **more: object) -> dict[str, Any]:
    return {"exec": {"apiVersion": VERSION, "command": command, "interactiveMode": "Never", **more}}


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


async def test_the_file_that_is_named_wins_over_everything(tmp_path: Path, home: Path, service_account: Path) -> None:
    named = write(tmp_path / "named", document("http://named"))
    environment = IN_A_POD | {"HOME": str(home), "KUBECONFIG": str(write(tmp_path / "env", document("http://env")))}

    connection = await connected(environment, kubeconfig=named, service_account=service_account)

    assert connection.url == "http://named"
    assert connection.source == f"kubeconfig {named}, context main"


async def test_kubeconfig_of_the_environment_wins_over_the_pod_s_service_account(
    tmp_path: Path, home: Path, service_account: Path
) -> None:
    environment = IN_A_POD | {"HOME": str(home), "KUBECONFIG": str(write(tmp_path / "env", document("http://env")))}

    assert (await connected(environment, service_account=service_account)).url == "http://env"


async def test_the_pod_s_service_account_wins_over_the_home_directory(home: Path, service_account: Path) -> None:
    connection = await connected(IN_A_POD | {"HOME": str(home)}, service_account=service_account)

    assert connection.url == "https://10.0.0.1:443"
    assert await connection.credentials.identity() == (("Authorization", "Bearer pod-token"),)


async def test_the_home_directory_is_the_last_resort(home: Path) -> None:
    assert (await connected(IN_A_POD | {"HOME": str(home)})).url == "http://home"


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


async def test_several_files_are_merged_without_the_missing_ones(tmp_path: Path) -> None:
    users = write(tmp_path / "users", document(clusters=[], contexts=[]))
    rest = write(tmp_path / "rest", document("https://rest", users=[]))
    environment = {"KUBECONFIG": f"{tmp_path / 'missing'}:{users}:{rest}"}

    connection = await connected(environment)

    assert (connection.url, await connection.credentials.identity()) == ("https://rest", BEARER)


async def test_certificates_may_be_in_the_file_or_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "ca.pem", CA)
    beside = {"server": "https://a", "certificate-authority": "ca.pem"}
    inside = {"server": "https://a", "certificate-authority-data": base64.b64encode(CA.encode()).decode()}

    for cluster in (beside, inside):
        path = write(tmp_path / "config", document(clusters=[{"name": "c", "cluster": cluster}]))
        assert len((await connected({}, kubeconfig=path)).tls.get_ca_certs()) == 1


async def test_a_server_name_and_a_proxy_are_kept(tmp_path: Path) -> None:
    cluster = {"server": "https://a/", "tls-server-name": "b", "proxy-url": "http://proxy"}
    path = write(tmp_path / "config", document(clusters=[{"name": "c", "cluster": cluster}]))

    connection = await connected({"HTTPS_PROXY": "http://another"}, kubeconfig=path)

    assert (connection.url, connection.server_name, connection.proxy) == ("https://a", "b", "http://proxy")


async def test_the_proxy_of_the_environment_serves_a_kubeconfig(tmp_path: Path) -> None:
    path = write(tmp_path / "config", document("https://a"))

    assert (await connected({"HTTPS_PROXY": "http://proxy"}, kubeconfig=path)).proxy == "http://proxy"


@pytest.mark.parametrize("context", [{"cluster": "c"}, {"cluster": "c", "user": "u"}], ids=["none", "empty"])
async def test_a_user_without_credentials_is_refused_where_kubectl_asks_for_a_name(
    tmp_path: Path, context: dict[str, str]
) -> None:
    contexts = [{"name": "main", "context": context}]
    users = [{"name": "u", "user": {}}]
    path = write(tmp_path / "config", document("https://a", contexts=contexts, users=users))

    with pytest.raises(ConnectError, match="has no credentials: token, tokenFile"):
        await connected({}, kubeconfig=path)


async def test_no_credentials_are_sent_without_tls(tmp_path: Path) -> None:
    path = write(tmp_path / "config", document("http://a", users=[{"name": "u", "user": {"token": "t", "as": "jane"}}]))

    assert await (await connected({}, kubeconfig=path)).credentials.identity() == (("Impersonate-User", "jane"),)


async def test_who_is_impersonated_follows_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "config", document("https://a", users=[{"name": "u", "user": {"token": "t", "as": "jane"}}])
    )
    credentials = (await connected({}, kubeconfig=path)).credentials
    user = {"token": "t", "as": "joe", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x/y": ["1", "2"]}}
    write(path, document("https://a", users=[{"name": "u", "user": user}]))

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
        pytest.param(document(users=[]), "the user u, which does not exist", id="no such user"),
        pytest.param(document(users=7), "users: Expected `array`, got `int`; correct it", id="users of another type"),
        pytest.param(document(kind="Secret"), "kind is not Config; name a kubeconfig", id="another kind"),
        pytest.param("a: 1\n---\nb: 1", "holds 2 documents", id="two documents"),
        pytest.param(document(""), "has no server", id="no server"),
        pytest.param(
            document(users=[{"user": {"token": "planted"}}]), r"users\[0\] has no name; correct it$", id="no name"
        ),
        pytest.param("[" * 5_000, "is not YAML", id="nested deeper than any stack"),
    ],
)
async def test_a_file_that_does_not_say_which_cluster_is_one_clear_error(
    tmp_path: Path, content: object, message: str
) -> None:
    path = write(tmp_path / "config", content)

    with pytest.raises(ConnectError, match=message) as raised:
        await connected({}, kubeconfig=path)

    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param('"planted\\q"', id="no such escape"),
        pytest.param("planted: x", id="a mapping in a value"),
        pytest.param('"planted', id="a quote that is not closed"),
        pytest.param("*planted", id="no such anchor"),
        pytest.param("!planted x", id="no such tag"),
        pytest.param("%planted", id="a character that begins no value"),
    ],
)
async def test_a_kubeconfig_that_is_not_yaml_is_described_without_the_secret_in_the_line(
    tmp_path: Path, token: str
) -> None:
    path = write(tmp_path / "config", f"users:\n- name: u\n  user:\n    token: {token}\n")

    with pytest.raises(ConnectError, match=r"is not YAML: line \d: \w+") as raised:
        await connected({}, kubeconfig=path)

    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    ("server", "cluster", "message"),
    [
        pytest.param("https://a:planted", {}, "address of the server cannot be read; expected", id="port"),
        pytest.param("https://a:0", {}, "address of the server has port 0", id="port 0"),
        pytest.param("10.0.0.1:6443", {}, "address of the server does not begin with http", id="no scheme"),
        pytest.param("https://[::1", {}, "address of the server cannot be read", id="half an address"),
        pytest.param("https://u:planted@a", {}, "has a user in it; put the user and the password", id="a user in it"),
        pytest.param("https://a", {"proxy-url": "socks5://u:planted@p"}, "the proxy .*SOCKS proxy", id="proxy"),
        pytest.param(
            "https://a", {"proxy-url": True}, r"clusters\[0\].cluster.proxy-url: Expected", id="a proxy that is no text"
        ),
        pytest.param(5, {}, r"clusters\[0\].cluster.server: Expected `str`, got `int`", id="a server that is a number"),
        pytest.param("https://a", {"tls-server-name": [1]}, r"tls-server-name: Expected `str`", id="name"),
    ],
)
async def test_an_address_that_is_none_is_one_clear_error(
    tmp_path: Path, server: str, cluster: dict[str, str], message: str
) -> None:
    clusters = [{"name": "c", "cluster": {"server": server, **cluster}}]
    path = write(tmp_path / "config", document(clusters=clusters))

    with pytest.raises(ConnectError, match=message) as raised:
        await connected({}, kubeconfig=path)

    assert str(path) in str(raised.value)
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        pytest.param({"certificate-authority": "no.pem"}, {}, "no.pem", id="CA missing"),
        pytest.param({"certificate-authority-data": "aGVsbG8="}, {}, "not usable as PEM", id="CA not PEM"),
        pytest.param(
            {"certificate-authority-data": "%%%"}, {}, "certificate-authority-data is not base64", id="not base64"
        ),
        pytest.param(
            {}, {"client-certificate": "no.crt", "client-key": "no.key"}, "no.crt", id="no client certificate"
        ),
        pytest.param({}, {"tokenFile": "no-token"}, "no-token", id="token file missing"),
        pytest.param(
            {}, {"token": "a\nb"}, "the token has characters that no header may have", id="token of two lines"
        ),
        pytest.param(
            {}, plugin("no-such-plugin", installHint="see http://h"), "no-such-plugin not found; see", id="none"
        ),
        pytest.param({}, plugin("false"), "false returned 1", id="plugin fails"),
        pytest.param({}, plugin("echo"), "decode", id="plugin talks nonsense"),
        pytest.param(
            {}, {"auth-provider": {"name": "oidc"}}, "auth-provider oidc has no idp-issuer-url", id="provider"
        ),
        pytest.param({}, {"auth-provider": {"name": "gcp"}}, "gcp was removed .*gke-gcloud-auth-plugin", id="removed"),
    ],
)
async def test_credentials_that_cannot_be_loaded_are_one_clear_error(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, Any], message: str
) -> None:
    clusters = [{"name": "c", "cluster": {"server": "https://a"} | cluster}]
    users = [{"name": "u", "user": user or {"token": "t"}}]
    path = write(tmp_path / "config", document(clusters=clusters, users=users))

    with pytest.raises(ConnectError, match=message) as raised:
        await connected({}, kubeconfig=path)

    assert str(path) in str(raised.value)


async def test_a_plugin_that_returns_no_credentials_is_an_error(tmp_path: Path) -> None:
    answer = f'{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "status": {{}}}}'
    user = plugin("echo", args=[answer])
    path = write(tmp_path / "config", document("https://a", users=[{"name": "u", "user": user}]))

    with pytest.raises(ConnectError, match="neither a token nor a client certificate"):
        await connected({}, kubeconfig=path)


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


@pytest.mark.parametrize(
    "users",
    [
        pytest.param([{"name": "u", "user": {"token": ["planted"]}}], id="another type"),
        pytest.param("users: [{name: u, user: {token: *planted}}]", id="no such anchor"),
        pytest.param("users: [{name: u, user: {token: !planted x}}]", id="no such tag"),
        pytest.param("users: " + "[" * 100_000, id="nested deeper than any stack"),
    ],
)
async def test_a_kubeconfig_that_becomes_wrong_is_described_without_the_token_in_it(
    tmp_path: Path, users: list[dict[str, str]] | str
) -> None:
    path = write(tmp_path / "config", document())
    connection = await connected({}, kubeconfig=path)
    write(path, document(users=users) if isinstance(users, list) else users)

    with pytest.raises(NotRenewed) as raised:
        await connection.credentials.load()

    assert "planted" not in str(raised.value)
    await connection.credentials.close()
