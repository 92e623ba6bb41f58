"""An isolation description, completed for one container. Pure.

<state>/pods/<UID>/<container>/<mount>    a directory of that container
<state>/node/<mount>                      a directory of all containers, or a file
"""

import hashlib
from typing import Final

from config.settings.isolation import IsolationHook, IsolationMechanism, IsolationMount, filled
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.cdi.edits import Additions, BindMount, Json

PODS: Final = "pods"
NODE: Final = "node"
_NAME_DIGITS: Final = 16


def additions(mechanism: IsolationMechanism, share: ContainerShare, state: str) -> Additions:
    """Return the container's additions. state: the directory of everything that the plugin creates for containers."""
    values = share.values()
    return Additions(
        env={name: filled(template, values) for name, template in mechanism.environment.items()},
        mounts=tuple(
            BindMount(source(mount, share, state), filled(mount.container_path, values), read_only=mount.read_only)
            for mount in mechanism.mounts
        ),
        device_nodes=mechanism.device_nodes,
        hooks=tuple(_hook(hook, share) for hook in mechanism.hooks),
    )


def source(mount: IsolationMount, share: ContainerShare, state: str) -> str:
    """Return the path of the mount on the host."""
    if mount.host_path is not None:
        return filled(mount.host_path, share.values())
    told = f"{mount.container_path}\0{mount.content or ''}"
    name = hashlib.sha256(told.encode()).hexdigest()[:_NAME_DIGITS]
    if mount.directory == "container":
        return f"{state}/{PODS}/{share.pod.uid}/{share.container.name}/{name}"
    return f"{state}/{NODE}/{name}"


def _hook(hook: IsolationHook, share: ContainerShare) -> Json:
    args = [filled(one, share.values()) for one in hook.args]
    return {"hookName": hook.hook_name, "path": hook.path, **({"args": args} if args else {})}
