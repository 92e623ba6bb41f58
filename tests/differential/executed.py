"""Which functions run in which scenario: who never runs a function cannot see that it is changed."""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from cProfile import Profile
from functools import _lru_cache_wrapper
from signal import ITIMER_PROF, SIGPROF, setitimer, signal
from types import CodeType, FrameType
from typing import Final, TypeAlias, TypeVar

# File, qualified name.
Function: TypeAlias = tuple[str, str]
AnswerT = TypeVar("AnswerT")
_OURS: Final = "scheduler."


def executed(ask: Callable[[], AnswerT], files: Collection[str]) -> tuple[AnswerT, frozenset[Function]]:
    """The answer, and the functions of these files that run for it."""
    with Profile(builtins=False) as profile:
        answer = ask()
    codes = [entry.code for entry in profile.getstats() if isinstance(entry.code, CodeType)]
    return answer, frozenset((code.co_filename, code.co_qualname) for code in codes if code.co_filename in files)


def forget_results() -> None:
    """What functions of ours have kept with `functools.cache` they work out again."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS):
            for each in vars(module).values():
                if isinstance(each, _lru_cache_wrapper):
                    each.cache_clear()


@contextmanager
def at_most(cpu_s: float) -> Iterator[None]:
    """TimeoutError after so many seconds of CPU: a changed operator may make a loop that never ends."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal(SIGPROF, stop)
    setitimer(ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        setitimer(ITIMER_PROF, 0)
        signal(SIGPROF, before)
