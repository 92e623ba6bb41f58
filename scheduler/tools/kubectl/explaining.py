"""`explain` and `what-if`: read a cluster or cluster files once, and print the answer."""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from scheduler.process.output import show_text
from scheduler.tools.cli.answering import show_document
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.cli.manifests import manifest, requesting, within
from scheduler.tools.cli.session import asked
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.answers import Explanation, WhatIfAnswer
from scheduler.tools.explain.pod_summary import own_name
from scheduler.tools.explain.text import explanation_text, what_if_text

R = TypeVar("R")
_PIPED_WIDTH: Final = 120


class WhatIfRequest(NamedTuple):
    """A pod of a `what-if` query. units, cards: its request, if there is no file."""

    file: Path | None
    units: int
    cards: int
    replicas: int


def explain(
    target: Target, files: Sequence[Path], pods: Sequence[tuple[str, str]], *, node: str, output: str | None
) -> None:
    """Print the answers. files: cluster files, none for the cluster of the flags. Raises Unanswerable.

    pods: (namespace, name) of each.
    """

    async def ask(of: ClusterView) -> list[Explanation]:
        return [await of.explained(namespace, name, node) for namespace, name in pods]

    for number, answer in enumerate(_answer(target, files, ask)):
        if number:
            show_text("\n")
        _print(answer, output)


def what_if(target: Target, files: Sequence[Path], asked: WhatIfRequest, *, output: str | None) -> bool:
    """Print the answer. Returns whether a copy fits. files: as in `explain`. Raises Unanswerable."""
    read = None if asked.file is None else within(manifest(asked.file), target.namespace)

    async def ask(of: ClusterView) -> WhatIfAnswer:
        made = partial(requesting, of.reader.resources, own_name(of.reading.engine))
        given = read or within(made(asked.units, asked.cards), target.namespace)
        pod, words = await of.prioritized(given)
        return of.what_if(pod, asked.replicas, words)

    answer = _answer(target, files, ask)
    _print(answer, output)
    return answer.fit > 0


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
