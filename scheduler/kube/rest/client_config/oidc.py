"""The id-token of a user of a kubeconfig with `auth-provider: oidc`.

kubectl also renews it, with a refresh token, and writes both back into the file. That is left to kubectl: most issuers
end a refresh token that two programs use.
"""

import base64
import json
import time
from collections.abc import Mapping
from typing import Final

from scheduler.kube.rest.client_config.kubeconfig_file import KubeconfigError

# A token with less of its life left is not used (client-go: expiryDelta).
_SPARE_S: Final = 10.0
_PARTS_OF_A_JWT: Final = 3


def id_token(user: str, config: Mapping[str, str]) -> str:
    """The token, while it is valid. user: for messages. Raises KubeconfigError, also for one that has expired."""
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
    """Unix seconds, 0 where the token names no time; None: it is not a JSON Web Token."""
    parts = token.split(".")
    if len(parts) != _PARTS_OF_A_JWT:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims.get("exp") or 0)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
