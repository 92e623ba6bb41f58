"""Specs as NVIDIA's toolkit writes them, shortened."""

import json

from deviceplugin.cdi.edits import Edits
from deviceplugin.cdi.nvidia_spec import NvidiaSpec, nvidia_spec
from deviceplugin.driver.cards import DriverCard

A, B = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=16384, minor=0),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=16384, minor=1),
)
LIBRARY = {
    "hostPath": "/usr/lib/libcuda.so.580",
    "containerPath": "/usr/lib/libcuda.so.580.95.05",
    "options": ["ro", "bind"],
}
HOOK = {
    "hookName": "createContainer",
    "path": "/usr/bin/nvidia-cdi-hook",
    "args": ["nvidia-cdi-hook", "update-ldcache"],
}


def device(name: str, *minors: int) -> dict[str, object]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"} for minor in minors]}}


def toolkit(*devices: dict[str, object], version: str = "0.5.0", **more: object) -> dict[str, object]:
    """What nvidia-ctk writes, shortened."""
    edits = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
        "mounts": [LIBRARY],
        "hooks": [HOOK],
    }
    return {"cdiVersion": version, "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": edits, **more}


def spec(
    *devices: dict[str, object], source: str = "/etc/cdi/nvidia.yaml", version: str = "0.5.0", bare: bool = False
) -> NvidiaSpec:
    """bare: no control nodes for every device."""
    more = {"containerEdits": {"mounts": [LIBRARY]}} if bare else {}
    found = nvidia_spec(source, json.dumps(toolkit(*devices, version=version) | more))
    assert found is not None
    return found


def for_all(minor: int, *devices: dict[str, object], source: str = "f") -> NvidiaSpec:
    """A spec whose every device brings the card of this minor as well."""
    edits = {"mounts": [LIBRARY], "deviceNodes": [{"path": f"/dev/nvidia{minor}"}]}
    found = nvidia_spec(source, json.dumps(toolkit(*devices) | {"containerEdits": edits}))
    assert found is not None
    return found


def split(uuid: str, minor: int, *caps: int) -> dict[str, object]:
    """A MIG device, as nvidia-ctk writes it."""
    paths = [f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps)]
    return {"name": uuid, "containerEdits": {"deviceNodes": [{"path": path, "hostPath": path} for path in paths]}}


def nodes(found: Edits) -> list[str]:
    listed = found.wire()["deviceNodes"]
    assert isinstance(listed, list)
    return [node["path"] for node in listed]
