"""Removes one item after the other. What is gone already is no mistake."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.driver.cards import Driver, SourceFailed
from deviceplugin.isolation import compute_modes
from deviceplugin.isolation.compute_modes import ComputeModes
from deviceplugin.isolation.trees import remove_tree
from deviceplugin.node.api import NodeApi
from deviceplugin.uninstall.plan import Item, ItemKind
from scheduler.kube.port import ApiError


@dataclass(frozen=True, slots=True)
class Hands:
    """api: of the node; None where there is none. driver: makes one when compute modes are to be given back."""

    api: NodeApi | None
    driver: Callable[[], Driver]

    async def remove(self, item: Item) -> str:
        """Remove it. Returns its name and why it is still there; "" when it is gone."""
        try:
            why = await self._remove(item)
        except ApiError as error:
            why = error.message
        except OSError as error:
            inner = f"{error.filename}: " if error.filename and str(error.filename) != item.name else ""
            why = f"{inner}{error.strerror}"
        return why and f"{item}: {why}"

    async def _remove(self, item: Item) -> str:
        """Why it is still there. Raises ApiError, OSError."""
        if item.kind is ItemKind.RESOURCE and self.api:
            await self.api.forget_resource(item.name)
        elif item.kind is ItemKind.ANNOTATION and self.api:
            await self.api.annotate({item.name: None})
        elif item.kind is ItemKind.MODES and (why := await self._not_given_back(Path(item.name))):
            return f"{why}; nvidia-smi -i CARD -c DEFAULT on the node, then remove the file"
        else:
            await asyncio.to_thread(_remove_path, item.kind, Path(item.name))
        return ""

    async def _not_given_back(self, path: Path) -> str:
        """Give each card its compute mode back. Returns why that failed; "" where it did not."""
        if not compute_modes.load(path):
            return ""
        driver = self.driver()
        try:
            modes = ComputeModes(path.parent, driver, dict)
            await driver.cards()  # Asked before a mode is set.
            return "; ".join(filter(None, [await modes.restore(uuid) for uuid in sorted(modes.before)]))
        except SourceFailed as error:
            return f"compute modes cannot be given back: {error}"
        finally:
            await driver.close()


def _remove_path(kind: ItemKind, path: Path) -> None:
    """Remove the path. No link is followed. Raises OSError."""
    if kind in {ItemKind.FILE, ItemKind.MODES}:
        path.unlink(missing_ok=True)
    elif kind is ItemKind.TREE and path.is_dir():
        remove_tree(path)
    elif kind is ItemKind.FOLDER and path.is_dir():
        path.rmdir()
