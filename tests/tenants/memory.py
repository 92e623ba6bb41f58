"""How many bytes an object holds, with everything that it reaches.

Counted instead of asked of the system: what the process has got from there says little about one of its parts.
"""

import asyncio
import gc
import random
import sys
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from cachetools import Cache

from scheduler.framework.evaluation_cache import EvaluationCache

# What a dictionary of weak references has is in a cache, or in use.
_CACHES: Final = (Cache, EvaluationCache, WeakValueDictionary)
_LEAVES: Final = (str, bytes, int, float, bool, types.NoneType)
# What belongs to the program and not to its data, and what leads to the whole process.
_FOREIGN: Final = (
    type,
    types.ModuleType,
    types.CodeType,
    types.FrameType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.BuiltinFunctionType,
    asyncio.Future,
    asyncio.AbstractEventLoop,
    random.Random,
)


def bytes_of(roots: Iterable[object], without: Collection[object], *, caches: bool) -> int:
    """Bytes that `roots` reach; each object counts once. without: objects that are not followed.

    caches: whether what bounded caches hold counts, too.
    """
    foreign = _FOREIGN if caches else (*_FOREIGN, *_CACHES)
    return sum(map(sys.getsizeof, _reached(roots, without, foreign)))


def counted_bytes(roots: Iterable[object], without: Collection[object]) -> int:
    """What the caches that `roots` reach hold by their own count, those that count bytes and not entries."""
    caches = [one for one in _reached(roots, without, _FOREIGN) if isinstance(one, _CACHES)]
    return int(sum(map(_counts, caches)))


def _counts(cache: Cache[Any, Any] | EvaluationCache | WeakValueDictionary[Any, Any]) -> float:
    if isinstance(cache, EvaluationCache):
        return cache.size_bytes
    return cache.currsize if isinstance(cache, Cache) and cache.currsize != len(cache) else 0


def _reached(roots: Iterable[object], without: Collection[object], foreign: tuple[type, ...]) -> Iterator[Any]:
    """Each object once."""
    seen = {id(one) for one in without}
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, foreign):
            continue
        seen.add(id(one))
        yield one
        if not isinstance(one, _LEAVES):
            waiting.extend(_referents(one))


def _referents(one: Any) -> Iterator[Any] | list[Any]:  # noqa: ANN401 - of any type
    if isinstance(one, msgspec.Struct):  # most of ours are not the collector's business
        return [getattr(one, name) for name in one.__struct_fields__]
    if isinstance(one, np.ndarray):
        return [one.base, *one.flat] if one.dtype.hasobject else [one.base]
    if isinstance(one, types.FunctionType):  # but not its globals
        return [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
    return gc.get_referents(one)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises when there is nothing in it
    except ValueError:
        return False
    return True
