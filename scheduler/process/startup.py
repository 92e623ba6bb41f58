"""Errors of a program that cannot start, or whose tasks failed."""


class StartupError(Exception):
    """The program cannot run with this configuration, or in this environment; the message says what to do."""


def first_message(error: BaseException) -> str:
    """Message of the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
