"""The error of a program that cannot start."""


class StartupError(Exception):
    """The program cannot run with this configuration, or in this environment; the message says what to do."""
