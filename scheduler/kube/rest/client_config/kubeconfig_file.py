"""Kubeconfig files as typed values, read and merged as client-go does. Pure except for reading the files.

A key that client-go does not know is ignored, as in client-go; a value of the wrong type is an error.
Source: client-go, tools/clientcmd/api/v1/types.go and loader.go.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from config.settings.plainyaml import DocumentError, parse

# A quoted value may be a secret. A single character is not, and shows the mistake.
_QUOTED: Final = re.compile(r"'[^']{2,}'")
_WHERE: Final = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)
_HEAD: Final = (("apiVersion", "v1"), ("kind", "Config"))


class KubeconfigError(Exception):
    """An unusable kubeconfig. The message names the key and what to do, and never quotes a value."""


class EnvVar(msgspec.Struct, frozen=True):
    """One variable of a credential plugin's environment."""

    name: str = ""
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    """A credential plugin."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct, frozen=True):
    """The predecessor of credential plugins; only `oidc` is still supported."""

    name: str = ""
    config: dict[str, str] = {}


class Extension(msgspec.Struct, frozen=True):
    """Data of another program in the file."""

    name: str = ""
    extension: Any = None


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """An API server and how to reach it."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: tuple[Extension, ...] = ()


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """Credentials of a user."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    impersonate: str = msgspec.field(name="as", default="")
    impersonate_uid: str = msgspec.field(name="as-uid", default="")
    impersonate_groups: tuple[str, ...] = msgspec.field(name="as-groups", default=())
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(name="as-user-extra", default_factory=dict)
    username: str = ""
    password: str = ""
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None


class Context(msgspec.Struct, frozen=True):
    """A context: a cluster and a user."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str = ""
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(msgspec.Struct):
    name: str = ""
    user: KubeconfigUser = msgspec.field(default_factory=KubeconfigUser)


class _NamedContext(msgspec.Struct):
    name: str = ""
    context: Context = Context()


class _Document(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """All files merged. Paths are absolute: each was relative to the folder of its own file."""

    clusters: dict[str, KubeconfigCluster] = field(default_factory=dict)
    users: dict[str, KubeconfigUser] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    current_context: str = ""


T = TypeVar("T", KubeconfigCluster, KubeconfigUser, Context)


def read(paths: Sequence[Path]) -> Merged:
    """The merged files. If several define a cluster, user or context, the whole entry of the first file is used.

    paths: must exist. Raises KubeconfigError.
    """
    merged, current = Merged(), ""
    for path in paths:
        document, folder = _document(path), path.absolute().parent
        _add(
            merged.clusters, ((one.name, _cluster(one.cluster, folder)) for one in document.clusters), path, "clusters"
        )
        _add(merged.users, ((one.name, _user(one.user, folder)) for one in document.users), path, "users")
        _add(merged.contexts, ((one.name, one.context) for one in document.contexts), path, "contexts")
        current = current or document.current_context
    return Merged(merged.clusters, merged.users, merged.contexts, current)


def without_values(error: Exception) -> str:
    """The error and its position, without any value from the file: it may be a token."""
    told = " ".join(_QUOTED.sub("", str(error)).split())
    if found := _WHERE.fullmatch(told):
        return f"{found[2] or 'the file'}: {found[1]}"
    return told or type(error).__name__


def _document(path: Path) -> _Document:
    try:
        documents = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"kubeconfig {path} cannot be read: {error}; make it readable by this user") from error
    except DocumentError as error:
        # The error is not quoted: it contains the line, which may contain a token.
        raise KubeconfigError(f"kubeconfig {path} is not YAML: {without_values(error)}; correct it") from None
    if len(documents) > 1:
        raise KubeconfigError(f"kubeconfig {path} holds {len(documents)} documents; put each in its own file")
    found = documents[0] if documents else {}
    if not isinstance(found, dict):
        message = f"kubeconfig {path} is not a mapping; `kubectl config view` shows what a kubeconfig looks like"
        raise KubeconfigError(message)
    for key, expected in _HEAD:
        if found.get(key, expected) != expected:
            raise KubeconfigError(f"kubeconfig {path}: {key} is not {expected}; specify a kubeconfig file")
    try:
        return msgspec.convert(found, _Document)
    except msgspec.ValidationError as error:
        raise KubeconfigError(f"kubeconfig {path}: {without_values(error)}; correct it") from None


def _add(into: dict[str, T], entries: Iterable[tuple[str, T]], path: Path, kind: str) -> None:
    """Add the entries of one file whose names are not in any earlier file."""
    own: dict[str, T] = {}
    for number, (name, value) in enumerate(entries):
        if not name:
            raise KubeconfigError(f"kubeconfig {path}: {kind}[{number}] has no name; correct it")
        if name in own:
            raise KubeconfigError(f"kubeconfig {path}: two {kind} have the name {name}; remove one")
        own[name] = value
    for name, value in own.items():
        into.setdefault(name, value)


def _cluster(cluster: KubeconfigCluster, folder: Path) -> KubeconfigCluster:
    return msgspec.structs.replace(cluster, certificate_authority=_absolute(cluster.certificate_authority, folder))


def _user(user: KubeconfigUser, folder: Path) -> KubeconfigUser:
    plugin = user.exec
    # A command without a slash is looked up on PATH.
    if plugin is not None and "/" in plugin.command:
        plugin = msgspec.structs.replace(plugin, command=_absolute(plugin.command, folder))
    return msgspec.structs.replace(
        user,
        client_certificate=_absolute(user.client_certificate, folder),
        client_key=_absolute(user.client_key, folder),
        token_file=_absolute(user.token_file, folder),
        exec=plugin,
    )


def _absolute(path: str, folder: Path) -> str:
    return str(folder / path) if path else ""
