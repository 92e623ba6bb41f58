"""The console script of the scheduler."""

from scheduler.process.early_stop import end_on_sigterm


def main() -> None:
    """Run the command of the command line."""
    end_on_sigterm()
    from scheduler.cli.main import main as commands  # noqa: PLC0415 - slow to import

    commands()


if __name__ == "__main__":
    main()
