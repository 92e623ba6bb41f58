"""Cluster that a command reads, chosen with kubectl's flags."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from config.settings import duration
from scheduler.kube.rest.client_config.overrides import NO_OVERRIDES, Overrides
from scheduler.tools.cli.plain import CONNECTION

# Path of the configuration in a pod of the scheduler.
MOUNTED: Final = Path("/etc/gpushare/scheduler.yaml")
_NAME: Final = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Cluster chosen by flags. program: prefix of errors. config: configuration file, None for the cluster's ConfigMap.

    namespace: "" for the context's. request_timeout_s: None for the command's own patience, math.inf for no limit.
    """

    program: str
    config: Path | None = None
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    request_timeout_s: float | None = None
    overrides: Overrides = NO_OVERRIDES

    @property
    def flags(self) -> dict[str, object]:
        """The flags that are settings, by their names in the configuration."""
        return {
            "clientConnection.kubeconfig": self.kubeconfig or None,
            "clientConnection.context": self.context or None,
        }


def _option(*names: str, says: str, value: str | None = None) -> Any:  # noqa: ANN401 - typer's
    return typer.Option(*names, help=says, metavar=value, rich_help_panel=CONNECTION, show_default=False)


def mounted(file: Path = MOUNTED) -> Path | None:
    """Return the scheduler's configuration if the command runs in its pod; None elsewhere."""
    return file if file.is_file() else None


def _seconds(text: str) -> float | None:
    """Return the value of `--request-timeout`: None if unset, infinity for 0. Raises typer.BadParameter."""
    try:
        return (duration.seconds(text) or math.inf) if text else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--request-timeout") from error


_ClientCertificate = Annotated[
    str, _option("--client-certificate", says="File with your TLS certificate.", value="FILE")
]
_CertificateAuthority = Annotated[
    str, _option("--certificate-authority", says="File with the CA of the API server.", value="FILE")
]
_TlsServerName = Annotated[
    str, _option("--tls-server-name", says="Name in the API server's certificate.", value="NAME")
]
_InsecureSkipTlsVerify = Annotated[
    bool, _option("--insecure-skip-tls-verify", says="Do not verify the API server's certificate.")
]
_ActingAsGroup = Annotated[
    list[str] | None, _option("--as-group", says="Group to impersonate; may be repeated.", value="NAME")
]
_RequestTimeout = Annotated[
    str, _option("--request-timeout", says="Limit of one request, such as 30s; 0 for none.", value="DURATION")
]


def _chosen(
    *,
    namespace: Annotated[
        str, _option("--namespace", "-n", says="Namespace (default: the context's).", value="NAME")
    ] = "",
    context: Annotated[str, _option("--context", says="Context of the kubeconfig.", value="NAME")] = "",
    kubeconfig: Annotated[str, _option("--kubeconfig", says="Kubeconfig file.", value="FILE")] = "",
    cluster: Annotated[str, _option("--cluster", says="Cluster of the kubeconfig.", value="NAME")] = "",
    user: Annotated[str, _option("--user", says="User of the kubeconfig.", value="NAME")] = "",
    server: Annotated[str, _option("--server", "-s", says="Address of the API server.", value="URL")] = "",
    token: Annotated[str, _option("--token", says="Bearer token.", value="TOKEN")] = "",
    client_certificate: _ClientCertificate = "",
    client_key: Annotated[str, _option("--client-key", says="File with its private key.", value="FILE")] = "",
    certificate_authority: _CertificateAuthority = "",
    tls_server_name: _TlsServerName = "",
    insecure_skip_tls_verify: _InsecureSkipTlsVerify = False,
    acting_as: Annotated[str, _option("--as", says="User to impersonate.", value="NAME")] = "",
    acting_as_uid: Annotated[str, _option("--as-uid", says="UID to impersonate.", value="UID")] = "",
    acting_as_group: _ActingAsGroup = None,
    request_timeout: _RequestTimeout = "",
    config: Annotated[
        Path | None, _option("--config", says="Scheduler configuration (default: the cluster's).", value="FILE")
    ] = None,
) -> Target:
    if cluster.endswith((".yaml", ".yml")):
        message = f"expected a cluster of the kubeconfig, found {cluster}; --cluster-file reads a file"
        raise typer.BadParameter(message, param_hint="--cluster")
    return Target(
        program="",
        config=config or mounted(),
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        request_timeout_s=_seconds(request_timeout),
        overrides=Overrides(
            cluster=cluster,
            user=user,
            server=server,
            token=token,
            client_certificate=client_certificate,
            client_key=client_key,
            certificate_authority=certificate_authority,
            tls_server_name=tls_server_name,
            insecure_skip_tls_verify=insecure_skip_tls_verify,
            impersonate=acting_as,
            impersonate_uid=acting_as_uid,
            impersonate_groups=tuple(acting_as_group or ()),
        ),
    )


def on_cluster(program: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add kubectl's connection flags to the command, which gets their values as `target`."""
    shared = inspect.signature(_chosen).parameters

    def with_flags(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for name, one in inspect.signature(command).parameters.items() if name != _NAME]

        @wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - of each flag its own type
            target = _chosen(**{name: given.pop(name) for name in shared})
            command(target=replace(target, program=program), **given)

        parameters = [*own, *shared.values()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return with_flags
