"""A cluster that is there already, reached as its kubeconfig says."""

import asyncio
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import load_kube_config

from e2e.control_plane.access import Access


class ExistingCluster:
    """One context of one kubeconfig; enter it to read it, outside any event loop.

    Credentials are taken once: a token that expires during the run ends the run.
    """

    def __init__(self, kubeconfig: Path, context: str) -> None:
        self._kubeconfig = kubeconfig
        self._access: Access | None = None
        self.context = context

    def __enter__(self) -> Self:
        """Read the kubeconfig and run its credential plugin, if it has one."""
        self._access = asyncio.run(self._read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the cluster as it is."""

    def access(self) -> Access:
        """As whom the kubeconfig says; RuntimeError outside the context."""
        if self._access is None:
            message = f"{self._kubeconfig} is not read yet: enter the cluster first"
            raise RuntimeError(message)
        return self._access

    def kubeconfig_path(self) -> Path:
        """The file that was given."""
        return self._kubeconfig

    async def _read(self) -> Access:
        settings = Configuration()
        await load_kube_config(str(self._kubeconfig), self.context, settings, persist_config=False)
        authorization = await settings.get_api_key_with_prefix("BearerToken")
        return Access(settings.host, _tls(settings), authorization)


def _tls(settings: Configuration) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
