"""Checks that a plugin's answers honor its contract. NumPy would silently broadcast an array of the wrong shape."""

from typing import Final

import numpy as np

from scheduler.framework.plugin import CardRejection, Plugin, Rejection
from scheduler.state.columns.arrays import Int64Array

# Comparing with a dtype is five times as fast as comparing with its type.
_BOOL: Final = np.dtype(np.bool_)
_INT64: Final = np.dtype(np.int64)


class PluginError(Exception):
    """A plugin gave an answer that its extension point does not allow. The message names the plugin."""


def check_rejection(plugin: Plugin, rejection: Rejection | CardRejection, shape: tuple[int, ...]) -> None:
    """Raise PluginError unless the mask is a bool array of this shape: (rows,) or (cards, rows)."""
    mask = rejection.rejected
    if mask.shape != shape or mask.dtype != _BOOL:
        where = f"the rejection {rejection.reason!r}"
        raise _error(plugin, where, "bool", shape, mask.dtype, mask.shape)


def checked_scores(plugin: Plugin, scores: Int64Array, shape: tuple[int, ...]) -> Int64Array:
    """Return the scores. Raises PluginError unless they are int64 and of this shape: (rows,) or (cards, rows)."""
    if scores.shape != shape or scores.dtype != _INT64:
        raise _error(plugin, "the scores", "int64", shape, scores.dtype, scores.shape)
    return scores


def _error(  # noqa: PLR0917 - a sentence of six parts
    plugin: Plugin, what: str, dtype: str, shape: tuple[int, ...], found_dtype: object, found: object
) -> PluginError:
    return PluginError(f"plugin {plugin.name}: {what}: expected {dtype}{list(shape)}, found {found_dtype}{found}")
