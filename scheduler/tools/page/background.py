"""Background tasks of the page. An error in one is logged, and ends neither the page nor the scheduler."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


def in_background(name: str, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a background task. name: for the log, if it ends with an error."""
    task = asyncio.create_task(doing, name=name)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("page.task_failed", task=task.get_name(), exc_info=error)
