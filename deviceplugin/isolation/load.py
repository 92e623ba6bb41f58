"""Which description of isolation the configuration asks for, and whether this node can carry it out."""

import stat
from pathlib import Path
from typing import Final

from config.settings import isolation
from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.isolation import IsolationMechanism
from config.settings.load import load
from config.settings.mistakes import ConfigurationError, Mistake

_ELF: Final = b"\x7fELF"
_LIBRARY: Final = "hamiCore.library"


def mechanism_of(configuration: DevicePluginConfiguration) -> IsolationMechanism:
    """The description. Blocks while files are read. Raises ConfigurationError with what is wrong."""
    name = configuration.isolation
    match name:
        case "none":
            return isolation.NONE
        case "mps":
            return isolation.mps(configuration.mps)
        case "hami-core":
            if objection := _objection(Path(configuration.hami_core.library)):
                raise ConfigurationError([Mistake(_LIBRARY, "configuration", objection)])
            return isolation.hami_core(configuration.hami_core)
    found = load(IsolationMechanism, file=Path(name), environ={}, flags={}, env_prefix="")
    if found.hooks and configuration.mode != "cdi":
        message = f"needs mode: cdi, found mode: {configuration.mode}"
        raise ConfigurationError([Mistake("hooks", name, message)])
    return found


def _objection(library: Path) -> str:
    """Why the library must not be loaded into containers; "" when it may."""
    try:
        about = library.stat()
        with library.open("rb") as opened:
            begins = opened.read(len(_ELF))
        above = [(directory, directory.stat().st_mode) for directory in library.resolve().parents]
    except OSError as error:
        return f"{library} cannot be read: {error.strerror}"
    if not stat.S_ISREG(about.st_mode) or begins != _ELF:
        return f"expected a shared library, found that {library} is no ELF file"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"expected that only its owner may write to {library}, found mode {stat.S_IMODE(about.st_mode):o}"
    for directory, mode in above:
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"expected that nobody else may write to {directory}, found mode {stat.S_IMODE(mode):o}"
    return ""
