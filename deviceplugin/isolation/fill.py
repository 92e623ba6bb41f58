"""A description of isolation, filled in for one container. Pure."""

import hashlib
from pathlib import Path

from config.settings.isolation import IsolationMechanism, IsolationMount, filled
from deviceplugin.allocation.portion import Portion
from deviceplugin.cdi.additions import Additions, BindMount
from deviceplugin.cdi.edits import Json

_NAME_DIGITS = 16


def additions(mechanism: IsolationMechanism, portion: Portion, state: Path) -> Additions:
    """What the container gets. state: the directory of everything that the plugin makes for containers."""
    values = portion.values()
    return Additions(
        env={name: filled(template, values) for name, template in mechanism.environment.items()},
        mounts=tuple(
            BindMount(
                source(mount, portion, state), filled(mount.container_path, values), read_only=mount.read_only
            )
            for mount in mechanism.mounts
        ),
        device_nodes=mechanism.device_nodes,
        hooks=tuple(_hook(hook.hook_name, hook.path, [filled(one, values) for one in hook.args]) for hook in mechanism.hooks),
    )


def source(mount: IsolationMount, portion: Portion, state: Path) -> str:
    """Its path on the host."""
    if mount.host_path is not None:
        return filled(mount.host_path, portion.values())
    if mount.directory == "container":
        return str(of_container(state, portion.pod.uid, portion.container.name) / name_of(mount))
    return str(of_node(state) / name_of(mount))


def of_container(state: Path, uid: str, container: str) -> Path:
    """What is kept for one container."""
    return of_pods(state) / uid / container


def of_pods(state: Path) -> Path:
    """What is kept for containers: a directory for each pod, called as its UID."""
    return state / "pods"


def of_node(state: Path) -> Path:
    """What all containers share."""
    return state / "node"


def name_of(mount: IsolationMount) -> str:
    """Of what is made for the mount: the same for the same mount, another for another text."""
    told = f"{mount.container_path}\0{mount.content or ''}"
    return hashlib.sha256(told.encode()).hexdigest()[:_NAME_DIGITS]


def _hook(name: str, path: str, args: list[str]) -> Json:
    return {"hookName": name, "path": path, **({"args": args} if args else {})}
