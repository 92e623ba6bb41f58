"""How a program says that it cannot start."""


class StartupError(Exception):
    """The program cannot run as it is configured, or where it is; the message says what to do."""
