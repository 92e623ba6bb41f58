"""A few nodes in two zones, and what VolumeBinding says of them and does on one: what its tests start with."""

from scheduler.framework.cycle_state import CycleState
from scheduler.plugins.volume.volume_binding import VolumeBinding
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.volumes import ZONE, with_claims


def three() -> Tables:
    """Nodes a and b in zone z1, c in z2."""
    zones = {"a": "z1", "b": "z1", "c": "z2"}
    return tables_of(*(wire_node(name, labels={ZONE: zone}) for name, zone in zones.items()))


def against(tables: Tables, *claims: str) -> dict[str, set[str]]:
    """Reason -> nodes that cannot give a pod these claims."""
    return reasons(VolumeBinding(), pod("p", **with_claims(*claims)), tables)


def plan(tables: Tables, node: str, *claims: str) -> tuple[dict[str, str], set[str]]:
    """(claim -> volume, claims for which one is made)."""
    reservation = VolumeBinding().reserve(
        pod("p", **with_claims(*claims)), tables, CycleState(), tables.row_of[node], 0
    )
    assert reservation.volumes is not None
    return {key[1]: name for name, key in reservation.volumes.taken}, {key[1] for key in reservation.volumes.made}
