"""`kubectl inspect gpushare [-d] [node ...]`: who holds how much of which card.

The default output is that of the legacy command, byte for byte; `-o`, `--used`, `--config`, `--context`,
`--kubeconfig`, further nodes, and below the legacy text nodes with pods and without allocatable GPU memory, are
additions. Reads any cluster that shares GPUs by memory, ours or the legacy one, through a kubeconfig (`KUBECONFIG`, or
`~/.kube/config`). Rights needed: list nodes and pods, or with nodes named, get nodes and list pods.
"""

import argparse
import os
import ssl
import warnings
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import quote

import msgspec
import yaml

from config.protocol.shallow import decoded
from scheduler.cli import ending
from scheduler.inspect import wire
from scheduler.inspect.document import as_json
from scheduler.inspect.lists import compact, used_only, wide
from scheduler.inspect.node_cards import ListedResources
from scheduler.inspect.tables import details, summary
from scheduler.inspect.terminal import one_line
from scheduler.inspect.view import InspectedNode, view
from scheduler.process.output import show, show_json, show_text, warn

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_PAGE: Final = 500
_RAW_PAGE: Final = msgspec.json.Decoder(wire.RawPage)
_CONNECT_S, _READ_S = 15.0, 60.0
# The view leaves finished pods out anyway; this saves fetching them.
_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"


class InspectFailed(Exception):
    """The cluster cannot be read; the message says why."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Exit code 1, with the reason on standard output like the legacy command, on failure."""
    ending.run("kubectl inspect gpushare", lambda: _inspect(arguments))


def _inspect(arguments: Sequence[str] | None) -> None:
    chosen = _parser().parse_intermixed_args(arguments)
    try:
        resources = _resources(chosen)
        node_items, pod_items = _fetch(chosen)
    except _unreadable() as error:
        # The legacy command ends without a line end here.
        show_text(f"Failed due to {_first_line(error)}")
        raise SystemExit(1) from None
    nodes, unread_nodes = wire.read(node_items, wire.ListedNode)
    pods, unread_pods = wire.read(pod_items, wire.ListedPod)
    warn((*unread_nodes, *unread_pods))
    shown = view(nodes, pods, with_gpu_memory_only=not chosen.nodes, resources=resources)
    if chosen.used:
        shown = used_only(shown)
    if chosen.output == "json":
        show_json(as_json(shown))
    else:
        show_text(_written(shown, chosen))


def _written(shown: Sequence[InspectedNode], chosen: argparse.Namespace) -> str:
    if chosen.output == "wide":
        return wide(shown, used=chosen.used)
    if chosen.output == "compact":
        return compact(shown)
    return (details if chosen.details else summary)(shown, named=bool(chosen.nodes))


def _unreadable() -> tuple[type[Exception], ...]:
    """What the libraries raise for a bad kubeconfig, credential plugin, TLS, proxy or answer."""
    # Slow to import, and needed only when something has failed.
    from kubernetes.config import ConfigException  # noqa: PLC0415
    from oauthlib.oauth2 import OAuth2Error  # type: ignore[import-untyped]  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    own = (InspectFailed, ConfigException, HTTPError, OAuth2Error, yaml.YAMLError, msgspec.MsgspecError)
    return (*own, OSError, ValueError, LookupError, TypeError, AttributeError)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kubectl inspect gpushare",
        description="Show which pods hold how much GPU memory on which card.",
        allow_abbrev=False,
    )
    parser.add_argument("nodes", nargs="*", metavar="node", help="only these nodes (default: all with GPU memory)")
    parser.add_argument("-d", dest="details", action="store_true", help="one line per pod")
    parser.add_argument(
        "-o",
        dest="output",
        choices=("wide", "compact", "json"),
        help="wide: a line per card, with model, health and pods; compact: a line per node, 100 columns; json",
    )
    parser.add_argument("--used", action="store_true", help="only nodes that pods hold units of; wide: only such cards")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the scheduler's configuration file, where it has one"
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: the current one)")
    parser.add_argument("--version", action=_Version, nargs=0, help="say which build this is, and end")
    parser.add_argument("--kubeconfig", help="kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As argparse; what was typed is quoted as text alone."""
        super().error(one_line(message))


class _Version(argparse.Action):
    """As argparse's own, but that what it says is looked up only when it is asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Say it, and end."""
        from scheduler.process.build_info import build_info  # noqa: PLC0415 - slow to import

        show([f"kubectl-inspect-gpushare {build_info()}"])
        parser.exit()


def _resources(chosen: argparse.Namespace) -> ListedResources:
    """As the configuration names them. Gives `chosen` its cluster where no flag names one. Raises InspectFailed."""
    if chosen.config is None:
        return ListedResources()
    # Slow to import, and seldom needed.
    from config.settings.mistakes import ConfigurationError  # noqa: PLC0415
    from scheduler.build import BrokenPlugin, resource_names  # noqa: PLC0415
    from scheduler.cli.answering import connection_flags, loaded  # noqa: PLC0415

    try:
        configuration = loaded(chosen.config, connection_flags(chosen.kubeconfig, chosen.context))
    except (ConfigurationError, BrokenPlugin) as error:
        raise InspectFailed("; ".join(str(error).splitlines())) from error
    connection, named = configuration.client_connection, resource_names(configuration)
    chosen.kubeconfig, chosen.context = connection.kubeconfig or None, connection.context or None
    return ListedResources(named.gpu_mem, named.gpu_count)


def _fetch(chosen: argparse.Namespace) -> tuple[list[msgspec.Raw], list[msgspec.Raw]]:
    """The nodes and the pods to look at. Raises InspectFailed, and whatever the libraries raise."""
    with _client(_kubeconfig(chosen.kubeconfig, os.environ), chosen.context) as api:
        if not chosen.nodes:
            return list(_listed(api, _NODES)), list(_listed(api, _PODS, f"spec.nodeName!=,{_LIVE}"))
        names = sorted(set(chosen.nodes))
        for name in names:
            if not wire.is_name(name):
                message = f"{name!r} is no name of a node"
                raise InspectFailed(message)
        nodes = [msgspec.Raw(_get(api, f"{_NODES}/{quote(name, safe='')}")) for name in names]
        return nodes, [pod for name in names for pod in _listed(api, _PODS, f"spec.nodeName={name},{_LIVE}")]


def _kubeconfig(named: str | None, environment: Mapping[str, str]) -> str:
    """The path, or several joined as in PATH. Raises InspectFailed when there is none."""
    paths = named or environment.get("KUBECONFIG") or "~/.kube/config"
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
        message = f"kubeconfig {paths} does not exist; name one with --kubeconfig or KUBECONFIG"
        raise InspectFailed(message)
    return paths


def _client(kubeconfig: str, context: str | None) -> "ApiClient":
    # Slow to import, and `--help` does not need it.
    from kubernetes import client, config  # noqa: PLC0415

    configuration = client.Configuration()
    configuration.retries = False  # its retries log a warning each and delay the error
    config.load_kube_config(kubeconfig, context, client_configuration=configuration)
    # `insecure-skip-tls-verify` in a kubeconfig is deliberate, and kubectl does not warn either.
    warnings.filterwarnings("ignore", message="Unverified HTTPS request")
    api = client.ApiClient(configuration)
    api.rest_client.pool_manager.connection_pool_kw["ssl_context"] = _tls(
        verify=configuration.verify_ssl, own_ca=bool(configuration.ssl_ca_cert)
    )
    return api


def _tls(*, verify: bool, own_ca: bool) -> ssl.SSLContext:
    """What the library would make, less VERIFY_X509_STRICT.

    From Python 3.13 on, that refuses CAs without an authority key identifier, which kubectl and every other client
    accept. CA and client certificate are loaded by the library.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify and not own_ca:
        context.load_default_certs()
    return context


def _listed(api: "ApiClient", path: str, field_selector: str = "") -> Iterator[msgspec.Raw]:
    """Every item of a list, fetched in pages."""
    query = {"limit": str(_PAGE)} | ({"fieldSelector": field_selector} if field_selector else {})
    while True:
        page = decoded(_RAW_PAGE.decode, _get(api, path, query))
        yield from page.items or ()
        if not page.metadata.rest:
            return
        query["continue"] = page.metadata.rest


def _get(api: "ApiClient", path: str, query: Mapping[str, str] | None = None) -> bytes:
    from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - as above

    method, url, headers, *_ = api.param_serialize(
        "GET", path, query_params=[*(query or {}).items()], auth_settings=["BearerToken"]
    )
    # A token file written by hand ends in a newline, and a header must not.
    headers = {name: value.strip() for name, value in headers.items()}
    try:
        answer = api.call_api(method, url, headers, _request_timeout=(_CONNECT_S, _READ_S))
    except ApiException as error:  # a certificate: the library puts what is wrong with it on another line
        raise InspectFailed(str(error.__context__ or error)) from error
    body: bytes = answer.read()
    if answer.status != HTTPStatus.OK:
        raise InspectFailed(wire.refusal(body) or f"{path}: the server answered {answer.status} {answer.reason}")
    return body


def _first_line(error: Exception) -> str:
    return one_line((str(error).strip() or type(error).__name__).splitlines()[0])


if __name__ == "__main__":
    main()
