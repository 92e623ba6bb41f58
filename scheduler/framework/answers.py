"""Checks of a plugin's answers against its contract; NumPy would broadcast an answer of another shape silently."""

from typing import Final

import numpy as np

from scheduler.framework.plugin import CardRejection, Plugin, Rejection
from scheduler.state.columns.arrays import Int64Array

# Comparing with a dtype takes a fifth of the time of comparing with its type.
_BOOL: Final = np.dtype(np.bool_)
_INT64: Final = np.dtype(np.int64)


class PluginError(Exception):
    """A bug of the plugin that the message names: an answer that its extension point does not allow."""


def check_rejection(plugin: Plugin, rejection: Rejection | CardRejection, shape: tuple[int, ...]) -> None:
    """Raise PluginError unless the mask is bool and of `shape`: (rows,), or (cards, rows)."""
    mask = rejection.rejected
    if mask.shape != shape or mask.dtype != _BOOL:
        where = f"the rejection {rejection.reason!r}"
        raise _error(plugin, where, "bool", shape, mask.dtype, mask.shape)


def checked_scores(plugin: Plugin, scores: Int64Array, shape: tuple[int, ...]) -> Int64Array:
    """The scores; PluginError unless they are int64 and of `shape`: (rows,), or (cards, rows)."""
    if scores.shape != shape or scores.dtype != _INT64:
        raise _error(plugin, "the scores", "int64", shape, scores.dtype, scores.shape)
    return scores


def _error(  # noqa: PLR0917 - a sentence of six parts
    plugin: Plugin, what: str, dtype: str, shape: tuple[int, ...], found_dtype: object, found: object
) -> PluginError:
    return PluginError(f"plugin {plugin.name}: {what}: expected {dtype}{list(shape)}, found {found_dtype}{found}")
