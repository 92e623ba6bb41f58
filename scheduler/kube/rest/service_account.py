"""The pod's service account as a source of credentials. The kubelet rotates the token in its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scheduler.kube.rest.address import Address
from scheduler.kube.rest.certificates import Pem, TlsMaterial
from scheduler.kube.rest.credentials import Lifetime, Loaded, NotRenewed

# As client-go.
REREAD_S: Final = 60.0
_TOKEN: Final = "token"  # noqa: S105 the name of a file
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class ServiceAccount:
    """The API server of the cluster that this pod runs in. Source: client-go, rest.InClusterConfig."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._directory = directory
        host, port = environment[_HOST], environment[_PORT]
        self.address = Address(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")

    @staticmethod
    def is_here(environment: Mapping[str, str], directory: Path) -> bool:
        """Whether this process runs in a pod with a service account."""
        return bool(environment.get(_HOST) and environment.get(_PORT)) and (directory / _TOKEN).is_file()

    async def load(self) -> Loaded:
        """Return the token and the CA as they are now. Raises NotRenewed."""
        token_file, ca_file = self._directory / _TOKEN, self._directory / "ca.crt"
        try:
            token, ca = token_file.read_text(encoding="utf-8").strip(), ca_file.read_bytes()
        except (OSError, UnicodeDecodeError) as error:
            raise NotRenewed(str(error)) from error
        if not token:
            message = f"the token in {token_file} is empty"
            raise NotRenewed(message)
        tls = TlsMaterial(ca=Pem(ca, f"CA {ca_file}"))
        return Loaded(authorization=f"Bearer {token}", tls=tls, lifetime=Lifetime(refresh_after_s=REREAD_S))
