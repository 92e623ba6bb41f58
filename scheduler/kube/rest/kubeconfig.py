"""A kubeconfig as a source of credentials: what kubernetes.aio reads from it, read again as client-go does."""

import asyncio
import datetime as dt
import math
import os
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from scheduler.kube.rest.credentials import Lifetime, NotRenewed

# client-go reads token files again after a minute; the library's OIDC and GCP code checks the expiry when called.
REREAD_S: Final = 60.0
PLUGIN_TIMEOUT_S: Final = 60.0
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
)


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
        if self._user is not None:
            return
        if name := context.safe_get("user"):
            message = f"user {name} does not exist"
            raise ConfigException(message)
        self._user = ConfigNode("user", {})

    @property
    def kind(self) -> str:
        """How the user is authenticated: exec, provider, file or fixed."""
        if self.provider is not None:
            return "provider"
        if "exec" in self._user:
            return "exec"
        return "file" if "tokenFile" in self._user and "token" not in self._user else "fixed"

    async def load_from_exec_plugin(self) -> bool:
        """Always run the plugin: the library does so only when 5 minutes of life are left, and swallows errors."""
        status = await ExecProvider(self._user["exec"]).run()
        token, certificate, key = map(status.get, ("token", "clientCertificateData", "clientKeyData"))
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
    """One context of one or several merged files. context: its name."""

    def __init__(self, paths: list[Path], context: str | None) -> None:
        """Raise what the library raises for a file that is not as it expects, and ConfigException."""
        self._loader = _Loader(paths, context)
        self.context: str = self._loader.current_context["name"]

    async def load(self, configuration: Configuration) -> Lifetime:
        """Put server, CA and current credentials into `configuration`. Raises NotRenewed."""
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT_S):
                await self._loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            message = f"the credential plugin did not answer within {PLUGIN_TIMEOUT_S:.0f} s"
            raise NotRenewed(message) from error
        except _FAILED as error:
            raise NotRenewed(str(error) or type(error).__name__) from error
        return self._lifetime()

    def _lifetime(self) -> Lifetime:
        if self._loader.kind == "exec":
            left_s = self._loader.expires_s - dt.datetime.now(dt.UTC).timestamp()
            return Lifetime(left_s * _SPENT, left_s)
        return Lifetime() if self._loader.kind == "fixed" else Lifetime(refresh_after_s=REREAD_S)
