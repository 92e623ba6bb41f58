"""`gpushare-device-plugin`: the commands and their flags.

Without a command, or with a flag first, it runs the plugin, as the legacy device plugin does.
"""

import asyncio
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn

import msgspec
import typer

from config.settings.deviceplugin import DEFAULT_STATE_DIR, ENV_PREFIX, DevicePluginConfiguration
from config.settings.load import load
from config.settings.mistakes import ConfigurationError, Mistake
from config.settings.schema import host_and_port
from deviceplugin.legacy_flags import as_ours
from scheduler.process.output import show, show_json, show_text, warn
from scheduler.process.startup import first_message

_MISCONFIGURED: Final = 2
_UNKNOWN: Final = 1
_RELEASED_WITHIN_S: Final = 30.0
_NODE_NAME: Final = "NODE_NAME"
_ANY_NODE: Final = "any-node"
_MISSING: Final = "is missing"
_DEFAULT_PORT: Final = 10262
_UNIT_MIB: Final = {"MiB": 1, "GiB": 1024}
_UNIT: Final = re.compile(r"([1-9][0-9]{0,9})?(MiB|GiB)")

_Config = Annotated[Path | None, typer.Option(help="Configuration file, as for run.")]
_Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")]
_ThisNode = Annotated[str | None, typer.Option(help="This node (default: the variable NODE_NAME).")]
_Address = Annotated[
    str | None, typer.Option(help="Where the plugin listens (default: 127.0.0.1 and the configured port).")
]
_Output = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text for people, json for programs.")]

cli = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@cli.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Kubernetes device plugin that shares GPUs by memory."""
    if version:
        from scheduler.process.build_info import build_info  # noqa: PLC0415 - slow to import, and not needed by `run`

        show([f"gpushare-device-plugin {build_info()}"])
        raise typer.Exit


@cli.command()
def run(
    call: typer.Context,
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (DevicePluginConfiguration).")] = None,
    kubeconfig: _Kubeconfig = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    node_name: _ThisNode = None,
    simulate: Annotated[Path | None, typer.Option(help="Cluster file: announce its cards.")] = None,
    simulate_control: Annotated[Path | None, typer.Option(help="Unix socket to inject faults.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address of probes and metrics (default: :10262).")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error (default: info).")] = None,
    mode: Annotated[str | None, typer.Option(help="auto, cdi or environment (default: auto).")] = None,
    cdi_dir: Annotated[Path | None, typer.Option(help="Directory for CDI specs (default: /var/run/cdi).")] = None,
    memory_unit: Annotated[str | None, typer.Option(help="GiB, MiB, or a multiple: 128MiB (default: GiB).")] = None,
    health_check: Annotated[str | None, typer.Option(metavar="BOOLEAN", help="Monitor cards (default: true).")] = None,
    isolation: Annotated[
        str | None, typer.Option(help="auto, none, driver, mps, hami-core, or a path (default: auto).")
    ] = None,
) -> None:
    """Run the device plugin on this node until it is stopped."""
    flags = {
        "clientConnection.kubeconfig": _text(kubeconfig),
        "clientConnection.context": context,
        "nodeName": node_name,
        "simulate": _text(simulate),
        "simulateControl": _text(simulate_control),
        "listen": listen,
        "logLevel": log_level,
        "mode": mode,
        "cdiDir": _text(cdi_dir),
        "healthCheck": health_check,
        "isolation": isolation,
    }
    try:
        configuration = configured(config, os.environ, flags, memory_unit)
    except ConfigurationError as error:
        _give_up(str(error), _MISCONFIGURED)
    _serve(configuration, ignored=call.obj or ())


@cli.command("check-config")
def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file (DevicePluginConfiguration).")],
    *,
    node_name: Annotated[
        str | None, typer.Option(help="The node (default: the variable NODE_NAME, or any node).")
    ] = None,
) -> None:
    """Check a configuration file, with this environment's settings, as run would read it (read-only)."""
    from config.clusterfile.reading import read  # noqa: PLC0415 - slow to import
    from deviceplugin.driver.simulated import SimulationError, read_simulation  # noqa: PLC0415

    try:
        configuration = _of_some_node(file, node_name)
        if configuration.simulate and configuration.node_name == _ANY_NODE:
            read(Path(configuration.simulate))
        elif configuration.simulate:
            read_simulation(Path(configuration.simulate), configuration.node_name)
    except (ConfigurationError, SimulationError) as error:
        _give_up(str(error), _MISCONFIGURED)
    show((f"{file} is valid: gpushare-device-plugin run accepts it",))


@cli.command()
def status(
    address: _Address = None,
    output: _Output = "text",
) -> None:
    """Show the plugin's status."""
    from deviceplugin.report.status import as_text, encode  # noqa: PLC0415 - slow to import, and not needed by `run`'s checks
    from deviceplugin.report.status_page import StatusUnknown, ask_status  # noqa: PLC0415

    try:
        told = asyncio.run(ask_status(address or local_address(os.environ)))
    except StatusUnknown as error:
        _give_up(str(error), _UNKNOWN)
    if output == "text":
        show_text(as_text(told))
    else:
        show_json(f"{encode(told).decode()}\n")


@cli.command()
def release(
    cards: Annotated[list[str], typer.Argument(metavar="CARD...", help="Indexes or UUIDs of cards, or all.")],
    *,
    minutes: Annotated[float, typer.Option("--for", metavar="MINUTES", help="Reclaim them after this time.")] = 10.0,
    done: Annotated[bool, typer.Option("--done", help="Reclaim them now.")] = False,
    state_dir: Annotated[
        Path | None, typer.Option(help="State directory of the plugin (default: as the plugin's).")
    ] = None,
) -> None:
    """Release cards for a reset or a change of MIG mode; they take no new pods until reclaimed."""
    from deviceplugin.health.releases import Order, socket_path  # noqa: PLC0415 - as above
    from deviceplugin.line_socket import Refusal, ask  # noqa: PLC0415

    directory = state_dir or Path(os.environ.get(f"{ENV_PREFIX}STATEDIR") or DEFAULT_STATE_DIR)
    order = msgspec.to_builtins(Order(cards, done=done, for_s=60 * minutes))
    try:
        said = asyncio.run(ask(socket_path(directory), order, within_s=_RELEASED_WITHIN_S))
    except (Refusal, OSError, TimeoutError) as error:
        hint = "" if isinstance(error, Refusal) else "; is the plugin running here?"
        _give_up(f"{error or 'no answer in time'}{hint}", _UNKNOWN)
    show([said])


@cli.command()
def fault(
    *,
    card: Annotated[
        str | None, typer.Option(help="Index or UUID of the card; without it, the fault affects the whole driver.")
    ] = None,
    xid: Annotated[int | None, typer.Option(help="Report this XID for the card.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Make the card disappear.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Make the card answer again.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Reset the card; fails while the plugin holds it.")] = False,
    hang: Annotated[bool | None, typer.Option(help="Requests to the card or driver hang.")] = None,
    pid: Annotated[int | None, typer.Option(help="This process uses memory of the card: --used-mib.")] = None,
    used_mib: Annotated[int | None, typer.Option("--used-mib", help="Memory that the process uses; 0: none.")] = None,
    reading: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A reading of the card, such as temperatureC=91; may be repeated."),
    ] = None,
    slow_s: Annotated[float | None, typer.Option(help="Seconds that the driver takes to answer.")] = None,
    fail: Annotated[bool | None, typer.Option(help="Make the driver fail; --no-fail: make it work again.")] = None,
    die: Annotated[bool, typer.Option("--die", help="Kill the process that talks to the driver.")] = False,
    control: Annotated[
        Path | None, typer.Option(help="The socket of --simulate-control (default: the configured one).")
    ] = None,
) -> None:
    """Inject a fault into simulated cards of a plugin that runs here with --simulate and --simulate-control."""
    from deviceplugin.driver.fault_control import tell  # noqa: PLC0415 - as above
    from deviceplugin.line_socket import Refusal  # noqa: PLC0415

    path = control or Path(os.environ.get(f"{ENV_PREFIX}SIMULATECONTROL") or "")
    if path == Path():
        _give_up("expected --control: the socket that the plugin was given as --simulate-control", _MISCONFIGURED)
    said: dict[str, object] = {"card": card, "xid": xid, "hang": hang, "pid": pid, "usedMiB": used_mib}
    said |= {"lost": lost or None, "back": back or None, "reset": reset or None, "die": die or None}
    said |= {"slowS": slow_s, "fail": fail, "reading": _readings(reading) if reading else None}
    try:
        asyncio.run(tell(path, {name: value for name, value in said.items() if value is not None}))
    except (Refusal, OSError, TimeoutError) as error:
        hint = "" if isinstance(error, Refusal) else "; is a plugin running here with --simulate-control?"
        _give_up(f"{error or 'no answer in time'}{hint}", _UNKNOWN)


def _readings(named: Sequence[str]) -> dict[str, object]:
    """Return the readings; numbers and booleans as in JSON, everything else as text."""
    found: dict[str, object] = {}
    for one in named:
        name, equals, value = one.partition("=")
        if not equals:
            _give_up(f"expected --reading NAME=VALUE, found {one[:80]!r}", _MISCONFIGURED)
        try:
            found[name] = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found[name] = value
    return found


@cli.command()
def doctor(
    *,
    config: _Config = None,
    kubeconfig: _Kubeconfig = None,
    node_name: _ThisNode = None,
    address: _Address = None,
    output: _Output = "text",
) -> None:
    """Check this node and print the problems with their remedies; exit code 1 if a check fails."""
    from deviceplugin.backends import backend_for  # noqa: PLC0415 - as above
    from deviceplugin.doctor.checks import as_text, encode, examined  # noqa: PLC0415
    from deviceplugin.doctor.examine import examine  # noqa: PLC0415
    from deviceplugin.doctor.facts import Facts  # noqa: PLC0415
    from deviceplugin.driver.simulated import SimulationError  # noqa: PLC0415

    async def facts(configuration: DevicePluginConfiguration) -> Facts:
        status_at = address or f"127.0.0.1:{configuration.listen_address[1]}"
        driver = backend_for(configuration).driver
        return await examine(configuration, os.environ, driver, status_at=status_at)

    flags = {"clientConnection.kubeconfig": _text(kubeconfig), "nodeName": node_name}
    try:
        report = examined(asyncio.run(facts(configured(config, os.environ, flags, None))))
    except (ConfigurationError, SimulationError) as error:
        _give_up(str(error), _MISCONFIGURED)
    if output == "text":
        show_text(as_text(report))
    else:
        show_json(f"{encode(report).decode()}\n")
    raise typer.Exit(0 if report.healthy else _UNKNOWN)


@cli.command()
def uninstall(
    *,
    config: _Config = None,
    kubeconfig: _Kubeconfig = None,
    node_name: _ThisNode = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until pods end and the kubelet drops the devices.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Like --wait, but serve probes until stopped; ready once all is removed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove what pods that still hold cards need.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove everything that the plugin has put on this node; exit code 1 if something remains."""
    from deviceplugin.uninstall.run import Options  # noqa: PLC0415 - as above
    from deviceplugin.uninstall.run import run as run_uninstall  # noqa: PLC0415
    from scheduler.process.startup import StartupError, stop_requested  # noqa: PLC0415

    chosen = Options(wait=wait, stay=stay, force=force, dry_run=dry_run)

    async def ran(configuration: DevicePluginConfiguration) -> bool:
        return await run_uninstall(configuration, os.environ, chosen, show_text, stop_requested())

    flags = {"clientConnection.kubeconfig": _text(kubeconfig), "nodeName": node_name}
    try:
        clean = asyncio.run(ran(configured(config, os.environ, flags, None)))
    except (ConfigurationError, StartupError) as error:
        _give_up(str(error), _MISCONFIGURED)
    raise typer.Exit(0 if clean else _UNKNOWN)


def configured(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], memory_unit: str | None
) -> DevicePluginConfiguration:
    """Return the configuration. Raises ConfigurationError with every mistake.

    environ: `NODE_NAME` stands in for a missing `GPUSHARE_DEVICE_PLUGIN_NODENAME`.
    memory_unit: value of the flag `--memory-unit`, the one-word form of the number `memoryUnitMiB`.
    """
    unit_mib, mistakes = None, []
    if memory_unit is not None and (unit_mib := _mib(memory_unit)) is None:
        message = f"expected GiB, MiB, or a multiple such as 128MiB, found {memory_unit[:80]!r}"
        mistakes.append(Mistake("memoryUnitMiB", "flag --memory-unit", message))
    variable = f"{ENV_PREFIX}NODENAME"
    spoken = {"flag --memory-unit-mi-b": "flag --memory-unit"}
    if variable not in environ and environ.get(_NODE_NAME):
        environ = {**environ, variable: environ[_NODE_NAME]}
        spoken[f"environment {variable}"] = f"environment {_NODE_NAME}"
    try:
        configuration = load(
            DevicePluginConfiguration,
            file=file,
            environ=environ,
            flags={**flags, "memoryUnitMiB": unit_mib},
            env_prefix=ENV_PREFIX,
        )
    except ConfigurationError as error:
        mistakes += [_spoken(one, spoken) for one in error.mistakes]
    if mistakes:
        raise ConfigurationError(mistakes)
    return configuration


def _of_some_node(file: Path, node_name: str | None) -> DevicePluginConfiguration:
    """Return the configuration as `configured` reads it; a node name that is missing in the file is made up."""
    flags = {"nodeName": node_name}
    try:
        return configured(file, os.environ, flags, None)
    except ConfigurationError as error:
        others = [one for one in error.mistakes if one.path != "nodeName" or not one.message.startswith(_MISSING)]
        if others or not error.mistakes:
            raise ConfigurationError(others) from None
    return configured(file, {**os.environ, _NODE_NAME: _ANY_NODE}, flags, None)


def _spoken(mistake: Mistake, spoken: Mapping[str, str]) -> Mistake:
    """Return the mistake with its source named as the user wrote it."""
    if (mistake.path, mistake.message) == ("nodeName", _MISSING):
        return replace(mistake, message=f"{_MISSING}; name this node with --node-name or {_NODE_NAME}")
    return replace(mistake, source=spoken.get(mistake.source, mistake.source))


def local_address(environ: Mapping[str, str]) -> str:
    """Return the address of a plugin that runs in the same environment, as seen from its own machine.

    A port from the plugin's file or flags is not known here.
    """
    try:
        _, port = host_and_port(environ.get(f"{ENV_PREFIX}LISTEN", ""))
    except ValueError:
        port = _DEFAULT_PORT
    return f"127.0.0.1:{port}"


def _serve(configuration: DevicePluginConfiguration, *, ignored: Sequence[str]) -> None:
    # Slow to import, and needed by this command only.
    from deviceplugin.start import run as run_plugin  # noqa: PLC0415
    from scheduler.process.startup import StartupError  # noqa: PLC0415

    try:
        asyncio.run(run_plugin(configuration, os.environ, ignored))
    except* StartupError as mistakes:
        _give_up(first_message(mistakes), _MISCONFIGURED)


def _mib(unit: str) -> int | None:
    match = _UNIT.fullmatch(unit)
    return int(match[1] or 1) * _UNIT_MIB[match[2]] if match else None


def _text(path: Path | None) -> str | None:
    return str(path) if path else None


def _give_up(message: str, code: int) -> NoReturn:
    lines = message.split("\n")
    warn(lines if len(lines) > 1 else [f"gpushare-device-plugin: {message}"])
    raise typer.Exit(code)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script. arguments: without the program's name; None for those of this process."""
    line = as_ours(sys.argv[1:] if arguments is None else arguments)
    cli(args=line.arguments, obj=line.ignored, prog_name="gpushare-device-plugin")


if __name__ == "__main__":
    main()
