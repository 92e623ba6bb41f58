"""`gpushare-scheduler explain` and `what-if`: the cluster of the kubeconfig, read once, and the answer on stdout."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from config.settings.scheduler import SchedulerConfiguration
from scheduler.process.output import show_json, show_text
from scheduler.tools.cli.asking import ClusterView, asked
from scheduler.tools.cli.manifests import manifest
from scheduler.tools.explain.answers import Explanation, WhatIfAnswer, as_json
from scheduler.tools.explain.text import explanation_text, what_if_text

_PIPED_WIDTH: Final = 120


def explain(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    *,
    namespace: str,
    name: str,
    node: str,
    output: str,
) -> None:
    """Print the answer. Raises Unanswerable."""

    async def ask(of: ClusterView) -> Explanation:
        return await of.explained(namespace, name, node)

    _print(asked(configuration, environment, ask), output)


def what_if(
    configuration: SchedulerConfiguration, environment: Mapping[str, str], *, file: Path, replicas: int, output: str
) -> None:
    """Print the answer. Raises Unanswerable."""
    read = manifest(file)

    async def ask(of: ClusterView) -> WhatIfAnswer:
        pod, words = await of.prioritized(read)
        return of.what_if(pod, replicas, words)

    _print(asked(configuration, environment, ask), output)


def _print(answer: Explanation | WhatIfAnswer, output: str) -> None:
    if output == "json":
        show_json(as_json(answer))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
        show_text(text(answer, width))


def text(answer: Explanation | WhatIfAnswer, width: int) -> str:
    """Text for a terminal of `width` columns."""
    return explanation_text(answer, width) if isinstance(answer, Explanation) else what_if_text(answer, width)
