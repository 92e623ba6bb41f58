"""Which API server, as whom: `--kubeconfig`, else KUBECONFIG, else the pod's service account, else `~/.kube/config`.

The scheduler usually runs in a pod, hence this order: kubectl looks at `~/.kube/config` first.
The files are read by kubernetes.aio; what it silently accepts is refused here.
"""

import binascii
import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from scheduler.kube.rest.credentials import Credentials, NotRenewed, Source
from scheduler.kube.rest.kubeconfig import DEFAULT_NAMESPACE, Kubeconfig, without_contents
from scheduler.kube.rest.service_account import ServiceAccount

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# What the library raises, besides its own exception, for a file that is not as it expects.
_MALFORMED: Final = (ConfigException, AttributeError, KeyError, TypeError, ValueError, OSError, binascii.Error)
_NAMED: Final = ("contexts", "clusters", "users")


class ConnectError(Exception):
    """No connection can be made as configured; the message says what, which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An API server and credentials for it. Nothing has been sent to it yet.

    url: without a slash at the end, may have a path. source: where this was read from, for the log.
    server_name: to expect in the server's certificate instead of the host of `url`. namespace: of what a user names
    without one, as kubectl takes it from the context.
    """

    url: str
    credentials: Credentials
    source: str
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = DEFAULT_NAMESPACE

    @property
    def tls(self) -> ssl.SSLContext:
        """For a connection that is made now."""
        return self.credentials.tls


async def connect(
    environment: Mapping[str, str],
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Read the configuration, run a credential plugin where it names one, load certificates.

    context: of the kubeconfig, by default its current one; a context rules the service account out, which has none.
    service_account: directory of the token and the CA in a pod.
    Raises ConnectError, also for a plugin that fails.
    """
    if paths := _explicit(environment, kubeconfig):
        return await _from_kubeconfig(environment, paths, context)
    if context is None and ServiceAccount.is_here(environment, service_account):
        return await _opened(ServiceAccount(environment, service_account), f"service account in {service_account}")
    if (default := _default(environment)).exists():
        return await _from_kubeconfig(environment, [default], context)
    message = (
        f"no cluster is configured: there is no --kubeconfig, no KUBECONFIG, no service account in {service_account} "
        f"and no {default}; name a file with --kubeconfig, or run in a pod that has a service account"
    )
    raise ConnectError(message)


def _explicit(environment: Mapping[str, str], kubeconfig: Path | None) -> list[Path]:
    """Return the files that were named; of several in KUBECONFIG, as kubectl does, those that exist."""
    if kubeconfig is not None:
        _must_exist(kubeconfig, "--kubeconfig")
        return [kubeconfig]
    named = [Path(name).expanduser() for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    existing = [path for path in named if path.exists()]
    if named and not existing:
        _must_exist(named[0], "KUBECONFIG")
    return existing


def _default(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"


def _must_exist(path: Path, named_by: str) -> None:
    if not path.exists():
        message = f"kubeconfig {path}, named by {named_by}, does not exist; name an existing file, or leave it out"
        raise ConnectError(message)


async def _from_kubeconfig(environment: Mapping[str, str], paths: list[Path], context: str | None) -> Connection:
    contexts = [name for path in paths for name in _contexts(path)]
    name = f"kubeconfig {os.pathsep.join(map(str, paths))}"
    try:
        source = Kubeconfig(paths, context)
    except _MALFORMED as error:
        told, names = without_contents(error), ", ".join(contexts) or "(none)"
        message = f"{name}: {told}; correct it, or choose with --context one of: {names}"
        raise ConnectError(message) from None
    opened = await _opened(source, f"{name}, context {source.context}", environment)
    return replace(opened, namespace=source.namespace)


def _contexts(path: Path) -> list[str]:
    """Return the names of the contexts; raises ConnectError when the file is not YAML, or not a kubeconfig."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        message = f"kubeconfig {path} cannot be read: {error}; make it readable for this user"
        raise ConnectError(message) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = f"kubeconfig {path} is not YAML: {without_contents(error)}; correct it"
        # Not from the error: it quotes the line, in which there may be a token.
        raise ConnectError(message) from None
    if not isinstance(document, dict) or not isinstance(document.get("contexts"), list):
        message = f"kubeconfig {path} has no list `contexts`; `kubectl config view` shows what one looks like"
        raise ConnectError(message)
    for kind in _NAMED:
        entries = document.get(kind)
        for number, one in enumerate(entries if isinstance(entries, list) else ()):
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                # The library would quote all of it.
                message = f"kubeconfig {path}: {kind}[{number}] has no name; correct it"
                raise ConnectError(message)
    return [context["name"] for context in document["contexts"]]


async def _opened(source: Source, name: str, environment: Mapping[str, str] | None = None) -> Connection:
    """environment: where to look for a proxy when the source names none; None: go without one."""
    configuration = Configuration()
    # Python 3.13 refuses CAs without an authority key identifier, which kubectl and every other client accept.
    configuration.disable_strict_ssl_verification = True
    credentials = Credentials(configuration, source)
    try:
        await credentials.load()
    except NotRenewed as error:
        message = f"{name}: {error}; correct what it names"
        raise ConnectError(message) from error
    url = configuration.host
    if problem := _url_problem(url):
        message = f"{name}: the address of the server {problem}; correct server"
        raise ConnectError(message)
    proxy = configuration.proxy or (proxy_for(environment, url) if environment is not None else None)
    if proxy and (problem := _url_problem(proxy, may_have_user=True)):
        message = f"{name}: the address of the proxy {problem}; correct proxy-url, or HTTPS_PROXY"
        raise ConnectError(message)
    return Connection(
        url=url,
        credentials=credentials,
        source=name,
        server_name=configuration.tls_server_name or None,
        proxy=proxy,
    )


def _url_problem(url: str, *, may_have_user: bool = False) -> str:
    """What is wrong with an address, without the address: it may have a password in it; "" when nothing is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"cannot be read: {without_contents(error)}"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "is none; expected one such as https://10.0.0.1:6443"
    if port == 0 or not url.isprintable():
        return "has port 0, or characters that no address has"
    if parts.username is not None and not may_have_user:
        return "has a user in it; put the user and the password under users"
    return ""


def proxy_for(environment: Mapping[str, str], url: str) -> str | None:
    """Return the proxy for `url` by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, or None.

    Once per connection: aiohttp would look it up, in a thread, for every request.
    NO_PROXY: hosts, domains and, as in kubectl, networks (10.0.0.0/8).
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    named = {name.lower().removesuffix("_proxy"): value for name, value in environment.items() if _names_a_proxy(name)}
    if any(_covers(entry.strip().lower(), host) for entry in named.get("no", "").split(",")):
        return None
    return named.get(parts.scheme) or named.get("all") or None


def _names_a_proxy(name: str) -> bool:
    return name.lower().endswith("_proxy")


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY means this host."""
    domain = entry.removeprefix("*").removeprefix(".")
    if entry == "*" or (domain and (host == domain or host.endswith(f".{domain}"))):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
