"""The console script of the device plugin."""

from scheduler.process.early_stop import end_on_sigterm


def main() -> None:
    """Run the command of the command line."""
    end_on_sigterm()
    from deviceplugin.cli import main as commands  # noqa: PLC0415 - slow to import
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415

    configure_for_commands()
    commands()


if __name__ == "__main__":
    main()
