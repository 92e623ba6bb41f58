"""Removes what a plan says, one after the other; what fails keeps nothing else from being removed."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from deviceplugin.driver.cards import DriverCards, SourceFailed
from deviceplugin.isolation.compute_modes import ComputeModes, ModeSetter
from deviceplugin.isolation.trees import remove_tree
from deviceplugin.uninstall.plan import Plan, Removal, RemovalKind
from scheduler.kube.port import ApiError


class NodeEraser(Protocol):
    """Takes things off our own node object. Both raise ApiError."""

    async def annotate(self, annotations: dict[str, str | None]) -> None:
        """Remove those that are None."""
        ...

    async def forget_resource(self, name: str) -> None:
        """Off capacity and allocatable."""
        ...


class CardModes(ModeSetter, Protocol):
    """The part of `driver.cards.Driver` that compute modes are given back with."""

    async def cards(self) -> DriverCards:
        """Asked before a mode is set. Raises SourceFailed."""
        ...

    async def close(self) -> None:
        """Let go of the driver."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """failed: what could not be removed -> why."""

    removed: tuple[Removal, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)


class Hands:
    """api: of the node; None where there is none. driver: makes one when compute modes are to be given back."""

    def __init__(self, api: NodeEraser | None, driver: Callable[[], CardModes]) -> None:
        """Nothing is removed yet."""
        self._api = api
        self._driver = driver

    async def remove(self, plan: Plan) -> Done:
        """All of it; `last` only when all else is gone."""
        done = await self._each(plan.remove)
        if done.failed:
            return done
        last = await self._each(plan.last)
        return Done((*done.removed, *last.removed), last.failed)

    async def _each(self, removals: Sequence[Removal]) -> Done:
        removed, failed = [], {}
        for one in removals:
            if problem := await self._removed(one):
                failed[str(one)] = problem
            else:
                removed.append(one)
        return Done(tuple(removed), failed)

    async def _removed(self, one: Removal) -> str:
        """Why it is still there; "" when it is gone."""
        try:
            match one.kind:
                case RemovalKind.RESOURCE | RemovalKind.ANNOTATION:
                    await self._off_the_node(one)
                case RemovalKind.MODES:
                    return await self._give_back(Path(one.name))
                case _:
                    await asyncio.to_thread(_FILES[one.kind], Path(one.name))
        except ApiError as error:
            return error.message
        except OSError as error:
            return _said(error, one.name)
        return ""

    async def _off_the_node(self, one: Removal) -> None:
        if self._api is None:
            message = "there is no API server"
            raise ApiError(message)
        if one.kind is RemovalKind.RESOURCE:
            await self._api.forget_resource(one.name)
        else:
            await self._api.annotate({one.name: None})

    async def _give_back(self, path: Path) -> str:
        """The compute mode of each card, then the file goes. Raises OSError."""
        driver = self._driver()
        try:
            await driver.cards()
            modes = ComputeModes(path.parent, driver, dict)
            problems = [await modes.restore(uuid) for uuid in sorted(modes.before)]
        except SourceFailed as error:
            problems = [f"compute modes cannot be given back: {error}"]
        finally:
            await driver.close()
        if said := "; ".join(filter(None, problems)):
            return f"{said}; nvidia-smi -i CARD -c DEFAULT on the node, then remove the file"
        await asyncio.to_thread(_unlink, path)
        return ""


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _rmdir(path: Path) -> None:
    if path.is_dir():
        path.rmdir()


def _rmtree(path: Path) -> None:
    if path.is_dir():
        remove_tree(path)


_FILES: Final = {RemovalKind.FILE: _unlink, RemovalKind.TREE: _rmtree, RemovalKind.FOLDER: _rmdir}


def _said(error: OSError, path: str) -> str:
    """With the path, where it is another one: of what is deeper in a directory."""
    inner = error.filename if error.filename and str(error.filename) != path else ""
    return f"{inner}: {error.strerror}" if inner else str(error.strerror)
