"""The console script of the scheduler."""

import gc
from typing import Final

from scheduler.process.early_stop import end_on_sigterm

# More objects than imports create: modules stay, and a search for garbage among them takes a tenth of the start. `run`
# sets thresholds of its own (process/collector.py).
_OBJECTS_OF_MODULES: Final = 200_000


def main() -> None:
    """Run the command of the command line."""
    end_on_sigterm()
    gc.set_threshold(_OBJECTS_OF_MODULES)
    from scheduler.program import main as commands  # noqa: PLC0415 - slow to import

    commands()


if __name__ == "__main__":
    main()
