"""The file system of an image in a folder, and its programs run in it by runc as a hardened pod runs them.

The root file system is read-only, the user is the image's, without capabilities and without new privileges.
"""

import json
import secrets
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from e2e.deploy.image.image_builder import BuiltImage

_RUN_WITHIN_S: Final = 120.0
# Of what `runc spec` proposes; what it leaves out is a network, which none of these programs needs.
_NO_CAPABILITIES: Final[dict[str, list[str]]] = {}


class UnpackedImage:
    """One image in a folder of its own."""

    def __init__(self, image: BuiltImage, archive: Path, folder: Path, runc: Path) -> None:
        """archive: as `ImageBuilder.save` writes it. folder: is not there yet."""
        self._image = image
        self._folder = folder
        self._runc = [str(runc), f"--root={folder / 'state'}"]
        self.root = folder / "rootfs"
        self.root.mkdir(parents=True)
        with tarfile.open(archive) as whole:
            (manifest,) = json.load(_file(whole, "manifest.json"))
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=_file(whole, layer)) as files:
                    files.extractall(self.root, filter="fully_trusted")  # noqa: S202 - we have built it

    @property
    def bytes(self) -> int:
        """Of all of its files."""
        return sum(path.lstat().st_size for path in self.root.rglob("*") if not path.is_dir())

    def run(self, *command: str) -> str:
        """What the program writes to both streams. Raises CalledProcessError."""
        self._write_specification(command)
        name = f"gpushare-image-{secrets.token_hex(4)}"
        return subprocess.run(
            [*self._runc, "run", f"--bundle={self._folder}", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=_RUN_WITHIN_S,
        ).stdout

    def _write_specification(self, command: Sequence[str]) -> None:
        target = self._folder / "config.json"
        target.unlink(missing_ok=True)
        subprocess.run([*self._runc, "spec", f"--bundle={self._folder}"], check=True)
        proposed: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        uid, gid = map(int, self._image.configuration["User"].split(":"))
        proposed["process"] |= {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": [*command],
            "env": self._image.configuration["Env"],
            "capabilities": _NO_CAPABILITIES,
            "noNewPrivileges": True,
        }
        proposed["root"]["readonly"] = True
        target.write_text(json.dumps(proposed), encoding="utf-8")


def _file(archive: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 - as tarfile has it
    """The content of one file. Raises KeyError where it is not in there."""
    found = archive.extractfile(archive.getmember(name))
    if found is None:
        raise KeyError(name)
    return found
