"""`explain` and `what-if`: read a cluster or cluster files once, and print the answer."""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from scheduler.process.output import show_text
from scheduler.tools.cli.answering import show_document
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.cli.manifests import manifest, within
from scheduler.tools.cli.session import asked
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.answers import Explanation, WhatIfAnswer
from scheduler.tools.explain.text import explanation_text, what_if_text

R = TypeVar("R")
_PIPED_WIDTH: Final = 120


def explain(target: Target, files: Sequence[Path], *, namespace: str, name: str, node: str, output: str | None) -> None:
    """Print the answer. files: cluster files, none for the cluster of the flags. Raises Unanswerable."""

    async def ask(of: ClusterView) -> Explanation:
        return await of.explained(namespace, name, node)

    _print(_answer(target, files, ask), output)


def what_if(target: Target, files: Sequence[Path], *, file: Path, replicas: int, output: str | None) -> None:
    """Print the answer. files: as in `explain`. Raises Unanswerable."""
    read = within(manifest(file), target.namespace)

    async def ask(of: ClusterView) -> WhatIfAnswer:
        pod, words = await of.prioritized(read)
        return of.what_if(pod, replicas, words)

    _print(_answer(target, files, ask), output)


def _answer(target: Target, files: Sequence[Path], question: Callable[[ClusterView], Awaitable[R]]) -> R:
    if not files:
        return asked(target, question)
    from scheduler.tools.simulate.played import view_of  # noqa: PLC0415 - slow to import

    async def ask() -> R:
        return await question(await view_of(target, files))

    return asyncio.run(ask())


def _print(answer: Explanation | WhatIfAnswer, output: str | None) -> None:
    if not show_document(answer, output):
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
        show_text(text(answer, width))


def text(answer: Explanation | WhatIfAnswer, width: int) -> str:
    """Return text for a terminal with `width` columns."""
    return explanation_text(answer, width) if isinstance(answer, Explanation) else what_if_text(answer, width)
