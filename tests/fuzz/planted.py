"""Secrets in what is read, recognisable: nothing that a program writes may have one.

They stand where people keep them: in the environment and the arguments of containers, in annotations of others, in the
users of a kubeconfig. They are planted into a case when it is mutated already, so that no mutation moves one to a place
whose value is told on purpose, such as an amount or a name.
"""

from typing import Any, Final

# No JSON, YAML or base64 writes it in another way.
PLANTED: Final = "plantedSecret7f3a"
_ANNOTATION: Final = "example.com/api-token"
_OF_A_USER: Final = ("token", "password", "client-key-data")
_OF_A_PROVIDER: Final = ("client-secret", "id-token", "refresh-token")


def in_object(found: Any) -> Any:  # noqa: ANN401 - JSON
    """The object with secrets, as far as it still has the places for them."""
    if not isinstance(found, dict):
        return found
    meta, spec = found.get("metadata"), found.get("spec")
    if isinstance(meta, dict) and isinstance(meta.setdefault("annotations", {}), dict):
        meta["annotations"][_ANNOTATION] = PLANTED
    if isinstance(spec, dict):
        for kind in ("containers", "initContainers"):
            containers = spec.get(kind)
            for one in containers if isinstance(containers, list) else ():
                if isinstance(one, dict):
                    one["env"] = [{"name": "TOKEN", "value": PLANTED}]
                    one["args"] = ["--token", PLANTED]
    return found


def in_kubeconfig(found: Any) -> Any:  # noqa: ANN401 - JSON
    """The kubeconfig with secrets in place of those that its users have."""
    users = found.get("users") if isinstance(found, dict) else None
    for one in users if isinstance(users, list) else ():
        user = one.get("user") if isinstance(one, dict) else None
        if isinstance(user, dict):
            user |= {key: PLANTED for key in _OF_A_USER if key in user}
            provider = user.get("auth-provider")
            config = provider.get("config") if isinstance(provider, dict) else None
            if isinstance(config, dict):
                config |= {key: PLANTED for key in _OF_A_PROVIDER if key in config}
    return found
