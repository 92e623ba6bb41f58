"""Kubeconfigs, as their authors write them, and what our client does with each: as kubectl, or a refusal by name.

In every text, `{https}`, `{http}`, `{proxy}` and `{secure-proxy}` are addresses of the recording servers, `{host}` is
that of the TLS server without its scheme, `{ca}`, `{crt}` and `{key}` are base64 of certificates, `{folder}` is where
the files lie: `server.crt`, `bundle.crt`, `me.crt`, `me.key`, `token`, `empty`, `plugin`, and `sub/config` for a second
file.
"""

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]
V1: Final = "client.authentication.k8s.io/v1"
BETA: Final = "client.authentication.k8s.io/v1beta1"
CA: Final[Json] = {"certificate-authority": "server.crt"}
TOKEN: Final[Json] = {"token": "secret"}
PAIR: Final[Json] = {"client-certificate": "me.crt", "client-key": "me.key"}
PLUGIN: Final[Json] = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}


@dataclass(frozen=True)
class Case:
    """refused: of our message; "" where we do as kubectl does. files: by name, in the order of KUBECONFIG."""

    name: str
    files: dict[str, Any]
    refused: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    kubectl_refuses: bool = False


def config(cluster: Json | None = None, user: Json | None = None, **more: object) -> Json:
    """A whole kubeconfig. cluster: added to the TLS server with its CA; a key that is None is left out."""
    described = {"server": "{https}", **CA, **(cluster or {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {key: value for key, value in described.items() if value is not None}}],
        "users": [{"name": "u", "user": TOKEN if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    } | more


def one(name: str, cluster: Json | None = None, user: Json | None = None, **more: Any) -> Case:  # noqa: ANN401 - of Case
    """One file."""
    return Case(name, {"config": config(cluster, user)}, **more)


def both_refuse(name: str, refused: str, cluster: Json | None = None, user: Json | None = None) -> Case:
    """Kubectl sends nothing either."""
    return one(name, cluster, user, refused=refused, kubectl_refuses=True)


def plugin(**changed: object) -> Json:
    """A user of the credential plugin in the folder."""
    return {"exec": {key: value for key, value in (PLUGIN | changed).items() if value is not None}}


def jwt(lives_s: float) -> str:
    """A token that nobody has signed."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time() + lives_s)}).encode()).decode().rstrip("=")
    return f"e30.{claims}.e30"


def oidc(**changed: str) -> Json:
    """A user of the provider that Kubernetes still has."""
    return {
        "auth-provider": {
            "name": "oidc",
            "config": {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "me"} | changed,
        }
    }


_CONTEXT: Final = {"name": "x", "context": {"cluster": "c", "user": "u"}}
_MERGED: Final[dict[str, Any]] = {
    "config": {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": None,
        "clusters": None,
        "users": [],
        "current-context": "",
    },
    "sub/config": config(
        {"certificate-authority": "../server.crt"}, {"client-certificate": "../me.crt", "client-key": "../me.key"}
    ),
}
_FIRST_WINS: Final[dict[str, Any]] = {
    "config": config(user={"token": "first"}),
    "sub/config": config({"server": "https://127.0.0.1:1"}, {"token": "second"}) | {"current-context": "none"},
}
_APART: Final[dict[str, Any]] = {
    "config": config(contexts=[_CONTEXT], users=[]),
    "sub/config": {"users": [{"name": "u", "user": {"tokenFile": "../token"}}]},
}
_IMPERSONATED: Final[Json] = {
    **TOKEN,
    "as": "jane",
    "as-uid": "u-1",
    "as-groups": ["dev", "ops"],
    "as-user-extra": {"Scopes": ["a", "b"], "example.com/x%y": ["ü"]},
}

CASES: Final = (
    # Identity
    one("a token"),
    one("a token file", user={"tokenFile": "token"}),
    one("a token file wins over a token", user={"token": "inline", "tokenFile": "token"}),
    one("a token where the token file is missing", user={"token": "inline", "tokenFile": "missing"}),
    one("user name and password", user={"username": "me", "password": "pass:word"}),
    one("a user name alone", user={"username": "me"}),
    one("certificate and key by file", user=PAIR),
    one("certificate and key in line", user={"client-certificate-data": "{crt}", "client-key-data": "{key}"}),
    one("certificate by file, key in line", user={"client-certificate": "me.crt", "client-key-data": "{key}"}),
    one("a key without a certificate is left out", user={**TOKEN, "client-key": "missing"}),
    one("a token and a certificate", user={**TOKEN, **PAIR}),
    one("impersonation", user=_IMPERSONATED),
    one("impersonation with a certificate", user={**PAIR, "as": "jane", "as-groups": ["system:masters"]}),
    both_refuse("a missing CA without TLS", "cannot be read", {"server": "{http}", "certificate-authority": "missing"}),
    one("impersonation without TLS", {"server": "{http}"}, {"as": "jane"}),
    # Cluster
    one("a CA in line", {"certificate-authority": None, "certificate-authority-data": "{ca}"}),
    one("a bundle of which one certificate is broken", {"certificate-authority": "bundle.crt"}),
    one("capital letters", {"server": "HTTPS://{host}"}),
    one("an absolute path", {"certificate-authority": "{folder}/server.crt"}),
    one("a server name", {"tls-server-name": "api.example"}),
    one("insecure", {"certificate-authority": None, "insecure-skip-tls-verify": True}),
    one("a path, a query and a slash at the end", {"server": "{https}/prefix/?a=b"}),
    one("no credentials without TLS", {"server": "{http}"}, {**TOKEN, **PAIR}),
    one("no compression", {"disable-compression": True}),
    one("a proxy", {"proxy-url": "{proxy}"}),
    one("a proxy with a password", {"proxy-url": "http://me:secret@{proxy-host}"}),
    one("a proxy without TLS", {"proxy-url": "{proxy}", "server": "{http}"}),
    one("a proxy over TLS", {"proxy-url": "{secure-proxy}"}),
    one("a proxy and a server name", {"proxy-url": "{proxy}", "tls-server-name": "api.example"}, PAIR),
    one("no proxy for this machine", environment={"HTTPS_PROXY": "http://127.0.0.1:1"}),
    # Credential plugins
    one("a plugin with a token", user=plugin()),
    one("a plugin with a certificate", user=plugin(args=["pair"])),
    one("a plugin of v1beta1 without interactiveMode", user=plugin(apiVersion=BETA, interactiveMode=None)),
    one("a plugin where one may be asked", user=plugin(interactiveMode="IfAvailable")),
    one(
        "a plugin with variables",
        user=plugin(env=[{"name": "PLUGIN_TOKEN", "value": "of-env"}, {"name": "PATH", "value": "/usr/bin:/bin"}]),
    ),
    one("a plugin on PATH", user=plugin(command="plugin")),
    one(
        "a plugin is told of the cluster",
        {
            "tls-server-name": "api.example",
            "disable-compression": True,
            "extensions": [
                {"name": "other", "extension": 1},
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
            ],
        },
        plugin(provideClusterInfo=True),
    ),
    one("a plugin is told of a proxy", {"proxy-url": "{proxy}"}, plugin(provideClusterInfo=True)),
    one("a token comes before a plugin", user={**TOKEN, **plugin()}),
    one("a token file comes before a plugin", user={"tokenFile": "token", **plugin()}),
    one("a plugin is told of a path", {"server": "{https}/prefix/?a=b"}, plugin(provideClusterInfo=True)),
    one("a certificate comes before a plugin", user={**PAIR, **plugin()}),
    one("impersonation by a plugin", user={**plugin(), "as": "jane"}),
    one("an id-token", user=oidc(**{"id-token": jwt(86_400)})),
    # Files
    Case("a second file of which the first has nulls", _MERGED),
    Case("the first file wins", _FIRST_WINS),
    Case("user and cluster in two files", _APART),
    Case("a file that is missing", {"missing": None, **_APART}),
    Case("an empty file", {"config": "", "sub/config": _MERGED["sub/config"]}),
    Case(
        "unknown keys and extensions",
        {
            "config": config(
                {"new": 1},
                {**TOKEN, "new": {}},
                extensions=[{"name": "e", "extension": {"a": 1}}],
                preferences={"colors": True},
            )
        },
    ),
    Case("JSON", {"config": json.dumps(config())}),
    # Refused by both
    both_refuse("a removed provider", "the auth-provider gcp was removed", user={"auth-provider": {"name": "gcp"}}),
    both_refuse(
        "a removed provider with a token", "azure was removed", user={**TOKEN, "auth-provider": {"name": "azure"}}
    ),
    both_refuse(
        "no such provider", "the auth-provider keystone does not exist", user={"auth-provider": {"name": "keystone"}}
    ),
    both_refuse("an incomplete provider", "oidc has no client-id", user=oidc(**{"client-id": ""})),
    both_refuse(
        "an id-token that has expired", "has expired; any request of kubectl", user=oidc(**{"id-token": jwt(-600)})
    ),
    both_refuse("a token and a user name", "token and username are two ways", user={**TOKEN, "username": "me"}),
    both_refuse(
        "a token file and a user name", "tokenFile and username are two", user={"tokenFile": "token", "username": "me"}
    ),
    both_refuse("an empty token file", "tokenFile .*empty is empty", user={"tokenFile": "empty"}),
    both_refuse("a missing token file", "tokenFile .* cannot be read", user={"tokenFile": "missing"}),
    both_refuse("a token of two lines", "characters that are invalid in a header", user={"token": "a\nb"}),
    both_refuse("groups without a user", "need a user to impersonate; add as", user={**TOKEN, "as-groups": ["a"]}),
    both_refuse("a user to impersonate of two lines", "value of Impersonate-User", user={**TOKEN, "as": "a\nb"}),
    both_refuse(
        "two certificates",
        "client-certificate and client-certificate-data are both",
        user={**PAIR, "client-certificate-data": "{crt}"},
    ),
    both_refuse("a certificate without a key", "needs a key", user={"client-certificate": "me.crt"}),
    both_refuse(
        "two CAs",
        "certificate-authority and certificate-authority-data are both",
        {"certificate-authority-data": "{ca}"},
    ),
    both_refuse(
        "a CA that is not base64",
        "certificate-authority-data",
        {"certificate-authority": None, "certificate-authority-data": "%%%"},
    ),
    both_refuse("insecure with a CA", "contradict each other", {"insecure-skip-tls-verify": True}),
    both_refuse("a proxy of another scheme", "proxy-url", {"proxy-url": "ftp://127.0.0.1:1"}),
    both_refuse("no server", "has no server", {"server": None}),
    both_refuse("a plugin without a version", "apiVersion of exec is missing", user=plugin(apiVersion=None)),
    both_refuse(
        "a plugin of v1alpha1",
        "apiVersion of exec is client.authentication.k8s.io/v1alpha1",
        user=plugin(apiVersion=V1.replace("v1", "v1alpha1")),
    ),
    both_refuse(
        "a plugin without interactiveMode", "interactiveMode of exec is missing", user=plugin(interactiveMode=None)
    ),
    both_refuse("a plugin that has to ask", "interactiveMode is Always", user=plugin(interactiveMode="Always")),
    both_refuse("a plugin without a command", "has no command", user=plugin(command=None)),
    both_refuse(
        "a plugin that is not installed",
        "missing-plugin not found; install it",
        user=plugin(command="missing-plugin", installHint="install it"),
    ),
    both_refuse("a plugin and a provider", "exec and auth-provider are two", user={**plugin(), **oidc()}),
    both_refuse("a plugin with half a pair", "only one of client certificate and key", user=plugin(args=["half"])),
    both_refuse("a plugin with another kind", "the kind Other", user=plugin(args=["kind"])),
    both_refuse("a number for a token", r"users\[0\].user.token: ", user={"token": 5}),
    both_refuse("nobody", "has no credentials", user={}),
    both_refuse("a password alone", "has no credentials", user={"password": "secret"}),
    Case(
        "a duplicate name",
        {"config": config(users=[{"name": "u", "user": TOKEN}] * 2)},
        "two users have the name u",
        kubectl_refuses=True,
    ),
    Case("another kind of file", {"config": config(kind="Pod")}, "kind is not Config", kubectl_refuses=True),
    Case(
        "no such context",
        {"config": config() | {"current-context": "gone"}},
        "there is no context gone",
        kubectl_refuses=True,
    ),
    # Others that are not taken
    one(
        "a SOCKS proxy",
        {"proxy-url": "socks5://127.0.0.1:1"},
        refused="SOCKS proxy, which is not supported",
        kubectl_refuses=True,
    ),
    one(
        "a server without a scheme",
        {"server": "{host}"},
        refused="does not begin with http:// or https://",
        kubectl_refuses=True,
    ),
    Case("no such user", {"config": config(users=[])}, "names the user u, which does not exist", kubectl_refuses=True),
    one("a user in the address", {"server": "https://me:secret@{host}"}, refused="contains a user"),
)
