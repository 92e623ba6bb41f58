"""Console script of the scheduler."""

import gc

from scheduler.process.early_stop import end_on_sigterm


def main() -> None:
    """Run the command given on the command line."""
    end_on_sigterm()
    # Most objects are long-lived: a full collection finds almost nothing, and takes half a second with 100,000 pods.
    gc.set_threshold(20_000, 2, 500)
    from scheduler.program import main as commands  # noqa: PLC0415 - slow to import

    commands()


if __name__ == "__main__":
    main()
