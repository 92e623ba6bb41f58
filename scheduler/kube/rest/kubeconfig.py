"""A kubeconfig as a source of credentials: what kubernetes.aio reads from it, read again as client-go does."""

import asyncio
import datetime as dt
import math
import os
import re
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from scheduler.kube.rest.certificates import digests
from scheduler.kube.rest.credential_plugin import CredentialPlugin
from scheduler.kube.rest.credentials import Lifetime, NotRenewed

# client-go reads token files again after a minute, certificates after five (transport/cert_rotation.go); the library's
# OIDC and GCP code checks the expiry when called.
REREAD_S: Final = 60.0
PLUGIN_TIMEOUT_S: Final = 60.0
DEFAULT_NAMESPACE: Final = "default"
# After this part of an exec credential's life it is renewed: no plugin per request, and no request that waits for one.
_SPENT: Final = 0.8

# The library's own, and what its providers let pass of HTTP, files, JSON, YAML and base64 that is not as they expect.
_FAILED: Final = (
    ConfigException,
    aiohttp.ClientError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    yaml.YAMLError,
    RecursionError,
)
# Of a cluster; the library takes them as they are.
_TEXTS: Final = ("server", "tls-server-name", "proxy-url")
# A single character is no secret, and says what is wrong.
_QUOTED: Final = re.compile(r"'[^']{2,}'")
# The library names what lacks a key by all that is in it.
_WHOLE: Final = re.compile(r" in [^{]*\{.*", re.DOTALL)


class _Loader(KubeConfigLoader):
    """The library's loader, where a plugin that fails is an error and not a log line and an anonymous request.

    expires_s: Unix seconds at which the plugin's credentials end, inf where it named no time.
    """

    _current_context: Any
    _cluster: Any
    _user: Any

    def __init__(self, paths: list[Path], context: str | None) -> None:
        merged = KubeConfigMerger(os.pathsep.join(map(str, paths))).config
        super().__init__(merged, context, config_base_path=None)  # type: ignore[no-untyped-call]
        self.expires_s = math.inf
        self._check()

    def _check(self) -> None:
        """Refuse what the library takes for an anonymous user, or for the server http://localhost."""
        context = self._current_context["context"]
        if not self._cluster.safe_get("server"):
            message = f"cluster {context['cluster']} has no server"
            raise ConfigException(message)
        for key in _TEXTS:
            if not isinstance(self._cluster.safe_get(key) or "", str):
                message = f"{key} of cluster {context['cluster']} is no text"
                raise ConfigException(message)
        if self._user is not None:
            return
        if name := context.safe_get("user"):
            message = f"user {name} does not exist"
            raise ConfigException(message)
        self._user = ConfigNode("user", {})

    @property
    def runs_plugin(self) -> bool:
        """Whether a credential plugin says who we are."""
        return self.provider is None and "exec" in self._user

    @property
    def way(self) -> tuple[object, ...]:
        """Where requests go, and which name the server has to show."""
        return tuple(map(self._cluster.safe_get, _TEXTS))

    @property
    def namespace(self) -> str:
        """As the context has it, which may say nothing."""
        return str(self._current_context["context"].safe_get("namespace") or DEFAULT_NAMESPACE)

    @property
    def has_token(self) -> bool:
        """Whether what was loaded says who we are by a header."""
        return "token" in vars(self)

    async def load_from_exec_plugin(self) -> bool:
        """Always run the plugin: the library does so only when 5 minutes of life are left, and swallows errors."""
        status: Any = await CredentialPlugin(self._user["exec"]).run()
        token, certificate, key = (status.get(one) for one in ("token", "clientCertificateData", "clientKeyData"))
        if not token and not (certificate and key):
            message = "the credential plugin returned neither a token nor a client certificate with its key"
            raise ConfigException(message)
        if token:
            self.token = f"Bearer {token}"
        if certificate:
            self.cert_file = _file(certificate)
            self.key_file = _file(key)
        end = status.get("expirationTimestamp")
        self.expires_s = dt.datetime.fromisoformat(end).timestamp() if end else math.inf
        return True


def _file(pem: str) -> str:
    """Return a private file with this content; the library removes it when the process exits."""
    path: str = FileOrData({"pem": pem}, "", "pem", base64_file_content=False).as_file()
    return path


class Kubeconfig:
    """One context of one or several merged files. context: its name. namespace: that it names, else `default`."""

    def __init__(self, paths: list[Path], context: str | None) -> None:
        """Raise what the library raises for a file that is not as it expects, and ConfigException."""
        self._paths = paths
        self._made_of = digests(paths)
        self._loader = _Loader(paths, context)
        self.context: str = self._loader.current_context["name"]
        self.namespace = self._loader.namespace

    async def load(self, configuration: Configuration) -> Lifetime:
        """Put server, CA and current credentials into `configuration`. Raises NotRenewed."""
        try:
            self._read_again()
            configuration.verify_ssl = True  # unless the cluster says otherwise
            async with asyncio.timeout(PLUGIN_TIMEOUT_S):
                await self._loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            message = f"the credential plugin did not answer within {PLUGIN_TIMEOUT_S:.0f} s"
            raise NotRenewed(message) from error
        except _FAILED as error:
            # Not from the error: it may quote a token.
            raise NotRenewed(without_contents(error)) from None
        if not self._loader.has_token:
            configuration.api_key.clear()
        return self._lifetime()

    def _read_again(self) -> None:
        """Follow the files, in the same context, for as long as that is the same server. Raises NotRenewed."""
        made_of = digests(self._paths)
        if made_of == self._made_of:
            return
        loader = _Loader(self._paths, self.context)
        if loader.way != self._loader.way:
            message = f"context {self.context} now has another server, proxy or server name: restart to go there"
            raise NotRenewed(message)
        self._loader, self._made_of = loader, made_of

    def _lifetime(self) -> Lifetime:
        if not self._loader.runs_plugin:
            return Lifetime(refresh_after_s=REREAD_S)
        left_s = self._loader.expires_s - dt.datetime.now(dt.UTC).timestamp()
        return Lifetime(left_s * _SPENT, left_s)


def without_contents(error: Exception) -> str:
    """Where something is wrong, and what, without what is written there: it may be a token."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark, text = error.problem_mark, " ".join(_QUOTED.sub("", error.problem or "").split())
        return f"line {mark.line + 1}, column {mark.column + 1}: {text}" if mark else text
    if isinstance(error, yaml.YAMLError | RecursionError | ValueError):
        return " ".join(_QUOTED.sub("", str(error)).split())
    return _WHOLE.sub("", str(error)) or type(error).__name__
