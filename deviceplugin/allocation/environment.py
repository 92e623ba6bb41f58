"""The environment that a container gets: docs/protocol.md, "Container environment". Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config.protocol import environment, names
from deviceplugin.allocation.decision import Share

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


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An Allocate response, as the kubelet recorded it. cdi_devices: by their full names."""

    variables: Mapping[str, str]
    cdi_devices: Collection[str] = ()


def replay_objection(answer: RecordedAnswer, device: str, shares: Sequence[Share]) -> str:
    """Why what the kubelet recorded at Allocate must not start with these shares; "" when it may.

    The kubelet replays it at every start without asking again, so a wrong one stays wrong for the life of the pod. It
    may be of either mode, or of the legacy device plugin, whose answer has card indexes alone.
    device: our CDI device for the ids of the container; its spec is written again, so it is right.
    """
    if device in answer.cdi_devices:
        return ""
    recorded = answer.variables
    if not recorded:
        return f"it was allocated with no card ({', '.join(sorted(answer.cdi_devices)) or 'an empty answer'})"
    now = container_environment(shares, by_cdi=False)
    if environment.CARD_UUIDS not in recorded and names.MEM_IDX in recorded:
        # The runtime reads an index, or a UUID where the node had one card.
        uuid = recorded.get(environment.VISIBLE_DEVICES) == now[environment.VISIBLE_DEVICES]
        now |= {} if uuid else {environment.VISIBLE_DEVICES: now[names.MEM_IDX]}
        named = (names.MEM_IDX, environment.VISIBLE_DEVICES)
    else:
        named = (environment.CARD_UUIDS, environment.VISIBLE_DEVICES)
    for variable in (*named, environment.MEM_CONTAINER, names.MEM_POD):
        was = recorded.get(variable, "")
        # Cards are listed by index, and a reboot may have changed their order.
        if sorted(was.split(",")) != sorted(now[variable].split(",")):
            return f"it was allocated with {variable}={was or 'nothing'}, but its allocation says {now[variable]}"
    return ""
