"""One context of a kubeconfig with its cluster and user, checked as kubectl checks them. Pure except for the check.

Source: client-go, tools/clientcmd/validation.go and client_config.go; transport/transport.go; rest/transport.go.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from scheduler.kube.rest.client_config.kubeconfig_file import (
    Exec,
    KubeconfigCluster,
    KubeconfigError,
    KubeconfigUser,
    Merged,
)
from scheduler.kube.rest.client_config.overrides import NO_OVERRIDES, Overrides

_SCHEMES: Final = ("http", "https")


class BadAddress(Exception):
    """An unusable address. The message says why, without the address, which may contain a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An API server. url: without a trailing slash, may have a path. server_name: replaces the host of `url` in TLS."""

    url: str
    server_name: str | None = None
    proxy: str | None = None

    @property
    def encrypted(self) -> bool:
        """Whether requests use TLS. Without it, no credentials are sent, as with kubectl."""
        return self.url.startswith("https:")


def server_url(written: str) -> str:
    """The server's address without query and trailing slash, for requests. Raises BadAddress."""
    _check(written, "such as https://10.0.0.1:6443")
    parts = urlsplit(written)
    if parts.fragment:
        raise BadAddress("has a #; remove it and what follows")
    if parts.username is not None:
        raise BadAddress("contains a user; put the user and the password under users")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def check_proxy(url: str) -> None:
    """Raise BadAddress if no requests can be sent through this proxy."""
    if url.lower().startswith("socks"):
        raise BadAddress("names a SOCKS proxy, which is not supported; name an HTTP proxy")
    _check(url, "such as http://proxy.example:3128")


def _check(url: str, example: str) -> None:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise BadAddress(f"cannot be read; expected one {example}") from None
    if parts.scheme not in _SCHEMES or not host:
        raise BadAddress(
            f"does not begin with {' or '.join(f'{one}://' for one in _SCHEMES)} and a host; expected one {example}"
        )
    if port == 0 or not url.isprintable() or " " in url:
        raise BadAddress("has port 0 or invalid characters")


def proxy_for(environment: Mapping[str, str], url: str) -> str | None:
    """The proxy for `url` by HTTPS_PROXY, HTTP_PROXY and NO_PROXY as kubectl reads them, or None.

    Called once per connection: aiohttp would look it up in a thread for every request.
    NO_PROXY: hosts, domains and networks (10.0.0.0/8). This machine itself is never proxied.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""

    def named(name: str) -> str:
        return environment.get(name.upper()) or environment.get(name) or ""

    if _is_this_machine(host) or any(_covers(one.strip().lower(), host) for one in named("no_proxy").split(",")):
        return None
    return named(f"{parts.scheme}_proxy") or None


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY matches this host."""
    domain = entry.removeprefix("*").removeprefix(".")
    if entry == "*" or (domain and (host == domain or host.endswith(f".{domain}"))):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


DEFAULT_NAMESPACE: Final = "default"
PLUGIN_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_MODES: Final = ("Never", "IfAvailable", "Always")
_OIDC: Final = "oidc"
_REMOVED_PROVIDERS: Final = {
    "azure": "install kubelogin and name it under exec",
    "gcp": "install gke-gcloud-auth-plugin and name it under exec",
}


@dataclass(frozen=True, slots=True)
class ChosenContext:
    """One context with its cluster and user. cluster_name, user_name: as written in the context, for messages."""

    name: str
    namespace: str
    cluster_name: str
    cluster: KubeconfigCluster
    user_name: str
    user: KubeconfigUser
    address: Address


def chosen(merged: Merged, name: str | None, overrides: Overrides = NO_OVERRIDES) -> ChosenContext:
    """The context of this name; None for the current one. Raises KubeconfigError that lists every mistake in it."""
    merged, name = overrides.applied(merged, name or merged.current_context)
    if not name:
        raise _unusable(merged, "no current-context is set")
    if (context := merged.contexts.get(name)) is None:
        raise _unusable(merged, f"there is no context {name}")
    if not context.cluster:
        raise _unusable(merged, f"context {name} names no cluster")
    if (cluster := merged.clusters.get(context.cluster)) is None:
        raise _unusable(merged, f"context {name} names the cluster {context.cluster}, which does not exist")
    # kubectl continues without credentials, which nobody ever intends.
    if (user := merged.users.get(context.user) if context.user else KubeconfigUser()) is None:
        raise _unusable(merged, f"context {name} names the user {context.user}, which does not exist")
    try:
        address = _address(cluster)
    except BadAddress as error:
        raise _unusable(merged, f"cluster {context.cluster}: {error}") from None
    found = [f"cluster {context.cluster}: {mistake}" for mistake in _mistakes_of_cluster(cluster, address)]
    who = f"user {context.user}" if context.user else f"context {name}, which names no user,"
    found += [f"{who}{':' if context.user else ''} {mistake}" for mistake in _mistakes_of_user(user, address)]
    if found:
        raise _unusable(merged, "; ".join(found))
    namespace = context.namespace or DEFAULT_NAMESPACE
    return ChosenContext(name, namespace, context.cluster, cluster, context.user, user, address)


def runs_plugin(user: KubeconfigUser) -> bool:
    """Whether the credential plugin is used: as with kubectl, all other credentials of the user take precedence."""
    certificate = (user.client_certificate or user.client_certificate_data) and (
        user.client_key or user.client_key_data
    )
    return user.exec is not None and not (user.token or user.token_file or user.username or certificate)


def _unusable(merged: Merged, mistake: str) -> KubeconfigError:
    names = ", ".join(merged.contexts) or "(none)"
    return KubeconfigError(f"{mistake}; correct it, or choose with --context one of: {names}")


def _address(cluster: KubeconfigCluster) -> Address:
    if not cluster.server:
        raise BadAddress("it has no server")
    try:
        url = server_url(cluster.server)
    except BadAddress as error:
        raise BadAddress(f"the address of the server {error}") from None
    if cluster.proxy_url:
        try:
            check_proxy(cluster.proxy_url)
        except BadAddress as error:
            raise BadAddress(f"the address of the proxy (proxy-url) {error}") from None
    return Address(url=url, server_name=cluster.tls_server_name or None, proxy=cluster.proxy_url or None)


def _mistakes_of_cluster(cluster: KubeconfigCluster, address: Address) -> Iterator[str]:
    has_ca = cluster.certificate_authority or cluster.certificate_authority_data
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield _both("certificate-authority")
    if has_ca and cluster.insecure_skip_tls_verify and address.encrypted:
        yield "a CA and insecure-skip-tls-verify contradict each other; remove one"


def _mistakes_of_user(user: KubeconfigUser, address: Address) -> Iterator[str]:
    token = "token" if user.token else "tokenFile" if user.token_file else ""
    if token and (user.username or (user.password and user.token)):
        yield f"{token} and username are two ways to authenticate; remove one"
    if user.client_certificate or user.client_certificate_data:
        yield from _mistakes_of_pair(user)
    if user.exec is not None:
        yield from _mistakes_of_plugin(user.exec)
    if user.exec is not None and user.auth_provider is not None:
        yield "exec and auth-provider are two ways to authenticate; remove one"
    if user.auth_provider is not None and address.encrypted:
        yield from _mistakes_of_provider(user.auth_provider.name, user.auth_provider.config)
    if address.encrypted and not _says_who(user):
        yield "has no credentials: token, tokenFile, username, client-certificate, exec or auth-provider; add one"
    if not user.impersonate and (user.impersonate_uid or user.impersonate_groups or user.impersonate_extra):
        yield "as-uid, as-groups and as-user-extra need a user to impersonate; add as"


def _says_who(user: KubeconfigUser) -> bool:
    """Whether the user has credentials; without them, kubectl prompts for a name and a password."""
    certificate = user.client_certificate or user.client_certificate_data
    return bool(certificate or user.token or user.token_file or user.username or user.exec or user.auth_provider)


def _mistakes_of_pair(user: KubeconfigUser) -> Iterator[str]:
    if user.client_certificate and user.client_certificate_data:
        yield _both("client-certificate")
    if user.client_key and user.client_key_data:
        yield _both("client-key")
    if not user.client_key and not user.client_key_data:
        yield "client-certificate needs a key; add client-key or client-key-data"


def _mistakes_of_plugin(plugin: Exec) -> Iterator[str]:
    if not plugin.command:
        yield "exec has no command; add the plugin's program"
    if plugin.api_version not in PLUGIN_VERSIONS:
        yield f"the apiVersion of exec is {plugin.api_version or 'missing'}; expected {' or '.join(PLUGIN_VERSIONS)}"
    if any(not one.name for one in plugin.env):
        yield "a variable in env of exec has no name; add it"
    # Only v1beta1 has a default value.
    if plugin.interactive_mode not in _MODES and (plugin.interactive_mode or plugin.api_version == PLUGIN_VERSIONS[0]):
        yield f"the interactiveMode of exec is {plugin.interactive_mode or 'missing'}; expected {', '.join(_MODES)}"


def _mistakes_of_provider(name: str, config: dict[str, str]) -> Iterator[str]:
    if name in _REMOVED_PROVIDERS:
        yield f"the auth-provider {name} was removed from Kubernetes; {_REMOVED_PROVIDERS[name]}"
    elif name != _OIDC:
        yield f"the auth-provider {name or '(unnamed)'} does not exist; use a credential plugin (exec)"
    else:
        yield from (
            f"auth-provider {_OIDC} has no {key}; add it"
            for key in ("idp-issuer-url", "client-id")
            if not config.get(key)
        )


def _both(key: str) -> str:
    return f"{key} and {key}-data are both set; remove one"
