"""Container images for a node without a registry, in one OCI archive for `ctr images import`.

Each image is one layer: a few folders, one static program, links to it, other files. Its bytes are the same every time.
Source: OCI image specification 1.1, image-layout and manifest.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

BUSYBOX: Final = "local.test/busybox:1"
PAUSE: Final = "local.test/pause:1"
_FOLDERS: Final = {"bin": 0o755, "dev": 0o755, "etc": 0o755, "proc": 0o755, "sys": 0o755, "tmp": 0o1777}
_FILES: Final = {"etc/group": b"root:x:0:\n", "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n"}
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names
_OCI: Final = "application/vnd.oci.image"

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Image:
    """One program as an image. links: further names for it in /bin. files: additional ones, by path in the image."""

    name: str
    program: Path
    links: Sequence[str] = ()
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The command that runs unless the pod specifies another one."""
        return [f"/bin/{self.links[0] if self.links else self.program.name}"]


def busybox(program: Path) -> Image:
    """Return a shell and small programs (`sh`, `env`, `sleep`, …), which are links to the one program."""
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    applets = [applet for applet in listed.stdout.split() if applet not in {program.name, "sh"}]
    return Image(BUSYBOX, program, ["sh", *applets])


def shared_objects(program: Path) -> dict[str, Path]:
    """Return loader and libraries that a program of this machine needs, by path in an image."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    # "libc.so.6 => /lib/…/libc.so.6 (0x…)", and the loader without an arrow.
    paths = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
    return {path.lstrip("/"): Path(path) for path in paths}


def archive(images: Iterable[Image], path: Path) -> None:
    """Write the images into one OCI archive."""
    with tarfile.open(path, "w") as target:
        _add(target, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        manifests = [_add_image(target, image) for image in images]
        _add(target, "index.json", _json(_document("index", manifests=manifests)))


def _add_image(target: tarfile.TarFile, image: Image) -> Json:
    layer = _add_blob(target, f"{_OCI}.layer.v1.tar", _layer(image))
    configuration = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": image.command},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    config = _add_blob(target, f"{_OCI}.config.v1+json", _json(configuration))
    document = _document("manifest", config=config, layers=[layer])
    manifest = _add_blob(target, f"{_OCI}.manifest.v1+json", _json(document))
    tag = image.name.rpartition(":")[2]
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag}
    return manifest | {"annotations": names}


def _layer(image: Image) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as layer:
        for name, mode in _FOLDERS.items():
            _add_special(layer, name, tarfile.DIRTYPE, mode)
        for name, content in _FILES.items():
            _add(layer, name, content)
        _add(layer, f"bin/{image.program.name}", image.program.read_bytes(), mode=0o755)
        for path, source in image.files.items():
            _add(layer, path, source.read_bytes(), mode=0o755)
        for link in image.links:
            _add_special(layer, f"bin/{link}", tarfile.SYMTYPE, 0o777, target=image.program.name)
    return data.getvalue()


def _add_blob(target: tarfile.TarFile, media_type: str, data: bytes) -> Json:
    digest = hashlib.sha256(data).hexdigest()
    path = f"blobs/sha256/{digest}"
    if path not in target.getnames():
        _add(target, path, data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _add(target: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = mode
    target.addfile(entry, io.BytesIO(data))


def _add_special(layer: tarfile.TarFile, name: str, kind: bytes, mode: int, *, target: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mode = mode
    entry.linkname = target
    layer.addfile(entry)


def _document(kind: str, **fields: object) -> Json:
    return {"schemaVersion": 2, "mediaType": f"{_OCI}.{kind}.v1+json", **fields}


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
