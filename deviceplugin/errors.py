"""Errors of task groups, for people."""


def first_message(error: BaseException) -> str:
    """Message of the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
