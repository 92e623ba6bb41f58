"""`gpushare-scheduler`: the commands and their flags. Each command's work is in a module of its own."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from config.load import load
from config.mistakes import ConfigurationError
from config.scheduler import SchedulerConfiguration

ENV_PREFIX: Final = "GPUSHARE_SCHEDULER_"
_MISCONFIGURED: Final = 2

cli = typer.Typer(
    help="A secondary Kubernetes scheduler that shares GPUs by memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@cli.callback()
def _program() -> None:
    """A callback makes the name of a command necessary, also while there is one command only."""


@cli.command()
def run(
    config: Annotated[Path | None, typer.Option(help="Configuration file (SchedulerConfiguration).")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address of probes and metrics [0.0.0.0:10261].")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
) -> None:
    """Schedule a cluster until told to stop."""
    flags = {
        "clientConnection.kubeconfig": str(kubeconfig) if kubeconfig else None,
        "clientConnection.context": context,
        "listen": listen,
        "logLevel": log_level,
    }
    configuration = _configuration(config, flags)
    # What follows is slow to import and needed by this command only.
    import uvloop  # noqa: PLC0415

    from scheduler.app import StartMistake  # noqa: PLC0415
    from scheduler.app import run as run_scheduler  # noqa: PLC0415
    from scheduler.cli.logs import configure  # noqa: PLC0415

    configure(configuration.log_level, configuration.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_scheduler(configuration, os.environ))
    except StartMistake as mistake:
        _give_up(str(mistake))


def _configuration(config: Path | None, flags: Mapping[str, object]) -> SchedulerConfiguration:
    try:
        return load(SchedulerConfiguration, file=config, environ=os.environ, flags=flags, env_prefix=ENV_PREFIX)
    except ConfigurationError as error:
        _give_up(str(error))


def _give_up(message: str) -> NoReturn:
    sys.stderr.write(f"gpushare-scheduler: {message}\n" if "\n" not in message else f"{message}\n")
    raise typer.Exit(_MISCONFIGURED)


def main() -> None:
    """The console script."""
    cli()


if __name__ == "__main__":
    main()
