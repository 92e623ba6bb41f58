"""The API server and credentials: `--kubeconfig`, KUBECONFIG, the pod's service account, or `~/.kube/config`.

The scheduler usually runs in a pod, which explains this order: kubectl reads `~/.kube/config` first.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.kube.rest.client_config.certificates import Pem, TlsMaterial
from scheduler.kube.rest.client_config.chosen_context import (
    DEFAULT_NAMESPACE,
    Address,
    BadAddress,
    check_proxy,
    proxy_for,
)
from scheduler.kube.rest.client_config.credentials import Credentials, Lifetime, Loaded, NotRenewed, Source
from scheduler.kube.rest.client_config.kubeconfig import Kubeconfig
from scheduler.kube.rest.client_config.kubeconfig_file import KubeconfigError
from scheduler.kube.rest.client_config.overrides import NO_OVERRIDES, Overrides

# One minute, as in client-go. The library's own hook measures it by the wall clock, which may be set back.
REREAD_S: Final = 60.0
_TOKEN: Final = "token"  # noqa: S105 the name of a file
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class ServiceAccount:
    """The API server of the cluster in which this pod runs, as kubernetes.aio finds it."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        # The import takes 0.1 s and 20 MiB, and commands outside of a pod do not need it.
        from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

        self._ca_file = directory / "ca.crt"
        self._loader = InClusterConfigLoader(
            token_filename=str(directory / _TOKEN),
            cert_filename=str(self._ca_file),
            try_refresh_token=False,
            environ=environment,
        )
        host, port = environment[_HOST], environment[_PORT]
        self.address = Address(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")

    @staticmethod
    def is_here(environment: Mapping[str, str], directory: Path) -> bool:
        """Whether this process runs in a pod with a service account (client-go, rest.InClusterConfig)."""
        return bool(environment.get(_HOST) and environment.get(_PORT)) and (directory / _TOKEN).is_file()

    async def load(self) -> Loaded:
        """Current token and CA. Raises NotRenewed."""
        from kubernetes.aio.client import Configuration  # noqa: PLC0415 - as above
        from kubernetes.aio.config import ConfigException  # noqa: PLC0415

        found = Configuration()
        try:
            self._loader.load_and_set(found)
            ca = Pem(self._ca_file.read_bytes(), f"CA {self._ca_file}")
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            raise NotRenewed(str(error)) from error
        token = str(found.api_key["BearerToken"]).removeprefix("bearer ").strip()
        lifetime = Lifetime(refresh_after_s=REREAD_S)
        return Loaded(authorization=f"Bearer {token}", tls=TlsMaterial(ca=ca), lifetime=lifetime)


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConnectError(Exception):
    """No connection is possible with this configuration; the message gives the reason, the setting, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An API server and credentials for it. Nothing has been sent to it yet.

    url: without a trailing slash, may have a path. source: file or origin of the configuration, for the log.
    server_name: expected in the server's certificate instead of the host of `url`. namespace: default namespace, which
    kubectl takes from the context.
    """

    url: str
    credentials: Credentials
    source: str
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = DEFAULT_NAMESPACE

    @property
    def tls(self) -> ssl.SSLContext:
        """Context for a connection that is made now."""
        return self.credentials.tls


async def connect(
    environment: Mapping[str, str],
    *,
    kubeconfig: Path | str | None = None,
    context: str | None = None,
    service_account: Path | None = SERVICE_ACCOUNT,
    overrides: Overrides = NO_OVERRIDES,
) -> Connection:
    """Read the configuration, run its credential plugin, load certificates.

    kubeconfig, context: None or "" if unset. context: the kubeconfig's current context by default; a context or
    overrides rule out the service account, which has neither. service_account: directory of the token and the CA in a
    pod; None to never use it. Raises ConnectError, also if the plugin fails.
    """
    context = context or None
    if paths := _explicit(environment, kubeconfig):
        return await _from_kubeconfig(environment, paths, context, overrides)
    chooses = context is not None or overrides != NO_OVERRIDES
    if service_account and not chooses and ServiceAccount.is_here(environment, service_account):
        account = ServiceAccount(environment, service_account)
        return await _opened(account, account.address, f"service account in {service_account}")
    if (default := _default(environment)).exists() or overrides.server:
        paths = [default] if default.exists() else []
        return await _from_kubeconfig(environment, paths, context, overrides)
    searched = ["--kubeconfig", "KUBECONFIG", *([f"service account in {service_account}"] if service_account else [])]
    raise ConnectError(
        f"no cluster is configured: there is no {', no '.join(searched)} and no {default}; "
        "name a file with --kubeconfig"
    )


def _explicit(environment: Mapping[str, str], kubeconfig: Path | str | None) -> list[Path]:
    """Explicitly named kubeconfig files. If KUBECONFIG lists several: those that exist, without duplicates."""
    if kubeconfig:
        _must_exist(path := Path(kubeconfig), "--kubeconfig")
        return [path]
    named = [Path(name) for name in dict.fromkeys(environment.get("KUBECONFIG", "").split(os.pathsep)) if name]
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


async def _from_kubeconfig(
    environment: Mapping[str, str], paths: list[Path], context: str | None, overrides: Overrides
) -> Connection:
    name = f"kubeconfig {os.pathsep.join(map(str, paths))}" if paths else "flags"
    try:
        source = Kubeconfig(paths, context, overrides)
    except KubeconfigError as error:
        # The error is not quoted: its cause may contain a token.
        raise ConnectError(str(error) if str(error).startswith("kubeconfig ") else f"{name}: {error}") from None
    except OSError as error:
        raise ConnectError(f"{name} cannot be read: {error}; make it readable by this user") from error
    address = source.address
    if address.proxy is None and (proxy := proxy_for(environment, address.url)):
        try:
            check_proxy(proxy)
        except BadAddress as error:
            raise ConnectError(f"{name}: the address of the proxy {error}; correct HTTPS_PROXY") from None
        address = Address(url=address.url, server_name=address.server_name, proxy=proxy)
    return await _opened(source, address, f"{name}, context {source.context}", source.namespace)


async def _opened(source: Source, address: Address, name: str, namespace: str = DEFAULT_NAMESPACE) -> Connection:
    credentials = Credentials(source)
    try:
        await credentials.load()
    except NotRenewed as error:
        advice = "" if ";" in str(error) else "; correct that setting"
        raise ConnectError(f"{name}: {error}{advice}") from error
    return Connection(
        url=address.url,
        credentials=credentials,
        source=name,
        server_name=address.server_name,
        proxy=address.proxy,
        namespace=namespace,
    )
