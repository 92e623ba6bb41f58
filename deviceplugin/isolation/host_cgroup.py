"""Whether the host has the cgroups that NVIDIA's driver limits."""

from pathlib import Path
from typing import Final

_CONTROLLERS: Final = "cgroup.controllers"
# The kernel enforces the limits with dmem, from 6.14 on; with misc, the driver counts itself.
_EITHER_OF: Final = frozenset({"dmem", "misc"})


def cgroup_problem(root: Path) -> str:
    """Return why the driver cannot limit cgroups of this host; "" if it can. root: where its cgroups are mounted."""
    try:
        controllers = (root / _CONTROLLERS).read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return f"the host has no cgroup v2 at {root} (hostCgroup)"
    except OSError as error:
        return f"the host's cgroups cannot be read: {error}"
    if _EITHER_OF.isdisjoint(controllers):
        return "the host's kernel has neither of the cgroup controllers dmem and misc"
    return ""
