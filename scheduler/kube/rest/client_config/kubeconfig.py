"""One context of kubeconfig files as a source of credentials, used as kubectl uses it and reread as client-go does.

Also the id-token of a kubeconfig user with `auth-provider: oidc`.
kubectl also renews it with a refresh token, and writes both back into the file. This program does not, because most
issuers revoke a refresh token that two programs use.
"""

import asyncio
import base64
import binascii
import datetime as dt
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from scheduler.kube.rest.client_config.certificates import Pem, TlsMaterial, digests
from scheduler.kube.rest.client_config.chosen_context import ChosenContext, chosen, runs_plugin
from scheduler.kube.rest.client_config.credential_plugin import CredentialPlugin, PluginFailed
from scheduler.kube.rest.client_config.credentials import Lifetime, Loaded, NotRenewed, impersonation
from scheduler.kube.rest.client_config.kubeconfig_file import KubeconfigError, read
from scheduler.kube.rest.client_config.overrides import NO_OVERRIDES, Overrides

# A token that expires sooner than this is not used (client-go: expiryDelta).
_SPARE_S: Final = 10.0
_PARTS_OF_A_JWT: Final = 3


def id_token(user: str, config: Mapping[str, str]) -> str:
    """The token, if it is valid. user: for messages. Raises KubeconfigError, also if it has expired."""
    token = config.get("id-token", "")
    if token:
        ends_s = _expires_s(token)
        if ends_s is None:
            message = f"the id-token of user {user} (auth-provider oidc) is not a JSON Web Token; sign in again"
            raise KubeconfigError(message)
        if time.time() + _SPARE_S < ends_s:
            return token
    raise KubeconfigError(
        f"the id-token of user {user} (auth-provider oidc) {'has expired' if token else 'is missing'}; any request of "
        "kubectl in this context renews it in the kubeconfig, or use a credential plugin (exec)"
    )


def _expires_s(token: str) -> float | None:
    """Expiry in Unix seconds, 0 if the token has none; None if it is not a JSON Web Token."""
    parts = token.split(".")
    if len(parts) != _PARTS_OF_A_JWT:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims.get("exp") or 0)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


# client-go rereads token files after a minute, certificates after five (transport/cert_rotation.go).
REREAD_S: Final = 60.0
PLUGIN_TIMEOUT_S: Final = 60.0
# An exec credential is renewed after this part of its life: no plugin run per request, and no request waits for one.
_SPENT: Final = 0.8
# Extension of a cluster whose value is passed to a credential plugin (client-go: clusterExtensionKey).
_FOR_PLUGINS: Final = "client.authentication.k8s.io/exec"


class Kubeconfig:
    """One context of one or several merged files. address: where requests are sent."""

    def __init__(self, paths: list[Path], context: str | None, overrides: Overrides = NO_OVERRIDES) -> None:
        """Raises KubeconfigError; OSError if a file cannot be read."""
        self._paths = paths
        self._overrides = overrides
        self._made_of = digests(paths)
        self._chosen = chosen(read(paths), context, overrides)
        self.context = self._chosen.name
        self.namespace = self._chosen.namespace
        self.address = self._chosen.address

    async def load(self) -> Loaded:
        """Current credentials. Raises NotRenewed."""
        try:
            self._read_again()
            return await _loaded(self._chosen)
        except (KubeconfigError, PluginFailed, OSError) as error:
            raise NotRenewed(str(error)) from error
        except TimeoutError as error:
            raise NotRenewed(f"the credential plugin did not answer within {PLUGIN_TIMEOUT_S:.0f} s") from error

    def _read_again(self) -> None:
        """Reread changed files with the same context. Raises NotRenewed if its server has changed."""
        made_of = digests(self._paths)
        if made_of == self._made_of:
            return
        found = chosen(read(self._paths), self.context, self._overrides)
        if found.address != self.address:
            message = f"context {self.context} now has a different server, proxy or server name: restart to use it"
            raise NotRenewed(message)
        self._chosen, self._made_of = found, made_of


async def _loaded(context: ChosenContext) -> Loaded:
    """Credentials of the context. Raises KubeconfigError, PluginFailed, OSError, TimeoutError."""
    user, acting_as = context.user, impersonation(context.user)
    certificate = key = None
    # A key without a certificate is not used.
    if user.client_certificate or user.client_certificate_data:
        certificate = _pem("client-certificate", user.client_certificate_data, user.client_certificate)
        key = _pem("client-key", user.client_key_data, user.client_key)
    tls = _tls(context, certificate, key)
    # Without TLS nothing of this is used, but kubectl requires the files to exist.
    if not context.address.encrypted:
        return Loaded(impersonation=acting_as, lifetime=Lifetime(refresh_after_s=REREAD_S))
    if runs_plugin(user):
        return await _from_plugin(context)
    authorization, lifetime = _token(context), Lifetime(refresh_after_s=REREAD_S)
    if authorization:
        authorization = f"Bearer {authorization}"
    elif user.username:
        both = f"{user.username}:{user.password}".encode()
        authorization = f"Basic {base64.b64encode(both).decode()}"
    elif user.auth_provider is not None:
        authorization = f"Bearer {id_token(context.user_name, user.auth_provider.config)}"
    return Loaded(authorization=authorization, impersonation=acting_as, tls=tls, lifetime=lifetime)


async def _from_plugin(context: ChosenContext) -> Loaded:
    assert context.user.exec is not None  # noqa: S101 - runs_plugin says so
    cluster = _cluster_info(context) if context.user.exec.provide_cluster_info else None
    async with asyncio.timeout(PLUGIN_TIMEOUT_S):
        status = await CredentialPlugin(context.user.exec, cluster).run()
    certificate = key = None
    if status.client_certificate_data:
        certificate = Pem(status.client_certificate_data.encode(), "client certificate of the credential plugin")
        key = Pem(status.client_key_data.encode(), "its key")
    left_s = status.expires_s - dt.datetime.now(dt.UTC).timestamp()
    return Loaded(
        authorization=f"Bearer {status.token}" if status.token else "",
        impersonation=impersonation(context.user),
        tls=_tls(context, certificate, key),
        lifetime=Lifetime(left_s * _SPENT, left_s),
    )


def _cluster_info(context: ChosenContext) -> dict[str, Any]:
    """The cluster as in an ExecCredential; keys without a value are left out."""
    cluster, ca = context.cluster, _ca(context)
    extensions = {one.name: one.extension for one in cluster.extensions}
    found = {
        "server": _told_server(cluster.server),
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(ca.text).decode() if ca else "",
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": extensions.get(_FOR_PLUGINS),
    }
    return {key: value for key, value in found.items() if value or key == "config"}


def _told_server(server: str) -> str:
    """The server as client-go reports it: the query is dropped if there is a path."""
    return server.partition("?")[0] if len(urlsplit(server).path) > 1 else server


def _tls(context: ChosenContext, certificate: Pem | None, key: Pem | None) -> TlsMaterial:
    verify = not context.cluster.insecure_skip_tls_verify
    return TlsMaterial(ca=_ca(context), certificate=certificate, key=key, verify=verify)


def _ca(context: ChosenContext) -> Pem | None:
    cluster = context.cluster
    return _pem("certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority)


def _pem(key: str, data: str, file: str) -> Pem | None:
    """Value of the key, or content of the file that it names; None if unset."""
    if data:
        try:
            return Pem(base64.b64decode(data.replace("\r", "").replace("\n", ""), validate=True), f"{key}-data")
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{key}-data is not base64; correct it") from None
    if not file:
        return None
    try:
        return Pem(Path(file).read_bytes(), f"{key} {file}")
    except OSError as error:
        message = f"{key} {file} cannot be read: {error.strerror}; correct the path, or make it readable by this user"
        raise KubeconfigError(message) from error


def _token(context: ChosenContext) -> str:
    """Bearer token, "" for a user without one: from tokenFile, or `token` if that file cannot be read."""
    user = context.user
    if not user.token_file:
        return user.token
    try:
        text = Path(user.token_file).read_text(encoding="utf-8").strip()
        problem = "" if text else "is empty"
    except (OSError, UnicodeDecodeError) as error:
        text, problem = "", f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
    if problem and not user.token:
        raise KubeconfigError(f"tokenFile {user.token_file} {problem}; correct the path, or write the token there")
    return text or user.token
