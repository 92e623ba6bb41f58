"""The pod's service account as a source of credentials. The kubelet rotates the token in its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import (
    SERVICE_HOST_ENV_NAME,
    SERVICE_PORT_ENV_NAME,
    InClusterConfigLoader,
)

from scheduler.kube.rest.credentials import Lifetime, NotRenewed

# As client-go. The library's own hook reckons this minute by the wall clock, which may be set back.
REREAD_S: Final = 60.0
_TOKEN: Final = "token"  # noqa: S105 the name of a file


class ServiceAccount:
    """The API server of the cluster that this pod runs in."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._loader = InClusterConfigLoader(
            token_filename=str(directory / _TOKEN),
            cert_filename=str(directory / "ca.crt"),
            try_refresh_token=False,
            environ=environment,
        )

    @staticmethod
    def is_here(environment: Mapping[str, str], directory: Path) -> bool:
        """Whether this process runs in a pod with a service account (client-go, rest.InClusterConfig)."""
        named = environment.get(SERVICE_HOST_ENV_NAME) and environment.get(SERVICE_PORT_ENV_NAME)
        return bool(named) and (directory / _TOKEN).is_file()

    async def load(self, configuration: Configuration) -> Lifetime:
        """Put server, CA and the token as it is now into `configuration`. Raises NotRenewed."""
        try:
            self._loader.load_and_set(configuration)
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            raise NotRenewed(str(error)) from error
        return Lifetime(refresh_after_s=REREAD_S)
