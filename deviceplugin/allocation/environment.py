"""The environment that a container gets: docs/protocol.md, "Container environment". Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from config.protocol import environment, names
from deviceplugin.allocation.pods import Share

_EMPTY: Final[Mapping[str, str]] = {}


def container_environment(
    shares: Sequence[Share], *, by_cdi: bool, node_labels: Mapping[str, str] = _EMPTY
) -> dict[str, str]:
    """Variable -> value for one container.

    shares: at least one, the same units on each, by card index. by_cdi: the cards come as device edits, and
    NVIDIA_VISIBLE_DEVICES must not add any; else that variable is how the runtime learns of them, always by UUID.
    """
    first, uuids = shares[0], ",".join(share.uuid for share in shares)
    variables = {
        environment.VISIBLE_DEVICES: environment.VISIBLE_NONE if by_cdi else uuids,
        environment.CARD_UUIDS: uuids,
        names.MEM_IDX: str(first.index),
        names.MEM_POD: str(sum(share.units for share in shares)),
        environment.MEM_CONTAINER: str(first.units),
        names.MEM_DEV: str(first.card_units),
    }
    if node_labels.get(environment.CGPU_DISABLE_LABEL) == environment.TRUE:
        variables[environment.CGPU_DISABLE] = environment.TRUE
    return variables


def replay_objection(recorded: Mapping[str, str], shares: Sequence[Share]) -> str:
    """Why the environment that the kubelet recorded at Allocate must not start with these shares; "" when it may.

    The kubelet replays it at every start and asks nobody again, so a wrong one stays wrong for the life of the pod.
    The legacy device plugin answered with the index of the card alone: its pods still run with that.
    """
    now = container_environment(shares, by_cdi=False)
    legacy = environment.CARD_UUIDS not in recorded and names.MEM_IDX in recorded
    which = names.MEM_IDX if legacy else environment.CARD_UUIDS
    for variable in (which, environment.MEM_CONTAINER, names.MEM_POD):
        was = recorded.get(variable, "")
        # Cards are listed by index, and a reboot may have changed their order.
        if sorted(was.split(",")) != sorted(now[variable].split(",")):
            return f"it was allocated with {variable}={was or 'nothing'}, but its allocation says {now[variable]}"
    return ""
