"""The pod's service account as a source of credentials. The kubelet rotates the token in its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scheduler.kube.rest.client_config.address import Address
from scheduler.kube.rest.client_config.certificates import Pem, TlsMaterial
from scheduler.kube.rest.client_config.credentials import Lifetime, Loaded, NotRenewed

# As in client-go. The library's own hook measures this minute by the wall clock, which may be set back.
REREAD_S: Final = 60.0
_TOKEN: Final = "token"  # noqa: S105 the name of a file
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class ServiceAccount:
    """The API server of the cluster that this pod runs in, as kubernetes.aio finds it."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        # Takes 0.1 s and 20 MiB to import, which commands outside of a pod do not need.
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
        """Return the token and the CA as they are now. Raises NotRenewed."""
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
