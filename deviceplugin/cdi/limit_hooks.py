"""NVIDIA's CDI hook that passes a container's memory limits to the driver. Pure.

It runs once for each card, when the container's cgroup exists and before its program starts, and takes the limits from
two variables of the container. Without our variables it must not run: it would obey a pod's own. Memory that a pod
guarantees to itself is missing for all others.

Source: NVIDIA Container Toolkit 1.20.1, nvidia-cdi-hook, apply-cuda-memory-limits.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from typing import Final

from deviceplugin.cdi.edits import Edits

NAME: Final = "apply-cuda-memory-limits"
_HOOKS: Final = "hooks"
_CARD: Final = "--gpu-id"


def limited(edits: Edits) -> frozenset[str]:
    """Return the UUIDs of the cards that the hooks among these edits limit."""
    return frozenset[str]().union(*map(_cards, edits.lists.get(_HOOKS, ())))


def of_card(uuid: str, edits: Collection[Edits]) -> Edits:
    """Return the hook among these edits that limits this card and no other; no edits if there is none."""
    hooks = [hook for part in edits for hook in part.lists.get(_HOOKS, ()) if _cards(hook) == {uuid}]
    return Edits(lists={_HOOKS: hooks[:1]})


def without(edits: Edits) -> Edits:
    """Return the edits without these hooks."""
    hooks = edits.lists.get(_HOOKS, ())
    return replace(edits, lists={**edits.lists, _HOOKS: [hook for hook in hooks if _args(hook) is None]})


def _args(hook: object) -> list[str] | None:
    """Return the arguments of such a hook; None for any other hook."""
    args = hook.get("args") if isinstance(hook, dict) else None
    return [str(arg) for arg in args] if isinstance(args, list) and NAME in args else None


def _cards(hook: object) -> frozenset[str]:
    """Return the UUIDs that the flag --gpu-id gives, in both of its spellings."""
    found = set()
    for arg, after in pairwise([*(_args(hook) or ()), ""]):
        flag, equals, value = arg.partition("=")
        if flag == _CARD:
            found.add(value if equals else after)
    return frozenset(found - {""})
