"""Host ports: what conflicts, as a table; and random histories against a plain list of pods."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.plugins.node.node_ports import HostPorts
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import HostPort
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.tables import Tables

ANY, HOME = "0.0.0.0", "127.0.0.1"  # noqa: S104 - compared with, not bound to


@pytest.mark.parametrize(
    ("taken", "wanted", "conflict"),
    [
        pytest.param(HostPort("", "TCP", 80), HostPort("", "TCP", 80), True, id="same"),
        pytest.param(HostPort("", "TCP", 80), HostPort("", "TCP", 81), False, id="another port"),
        pytest.param(HostPort("", "TCP", 80), HostPort("", "UDP", 80), False, id="another protocol"),
        pytest.param(HostPort(HOME, "TCP", 80), HostPort("10.0.0.1", "TCP", 80), False, id="another address"),
        pytest.param(HostPort(HOME, "TCP", 80), HostPort(HOME, "TCP", 80), True, id="same address"),
        pytest.param(HostPort(ANY, "TCP", 80), HostPort(HOME, "TCP", 80), True, id="every address is taken"),
        pytest.param(HostPort(HOME, "TCP", 80), HostPort(ANY, "TCP", 80), True, id="every address is wanted"),
        pytest.param(HostPort(HOME, "TCP", 80), HostPort("", "TCP", 80), True, id="no address is every address"),
        pytest.param(
            HostPort("::", "TCP", 80), HostPort(HOME, "TCP", 80), False, id="as kube-scheduler, :: is an address"
        ),
    ],
)
def test_what_conflicts(taken: HostPort, wanted: HostPort, conflict: bool) -> None:  # noqa: FBT001 - a case of the table
    ports = Tables(ResourceNames()).fact(HostPorts)
    ports.book(3, frozenset({taken}), 1)
    for rows, expected in (
        (ALL_ROWS, [False, False, False, conflict]),
        (np.array([4, 3]), [False, conflict]),
        (slice(3, 4), [conflict]),
        (slice(2, 3), [False]),
    ):
        assert ports.in_conflict(frozenset({wanted}), rows)[:4].tolist() == expected


PORTS = st.frozensets(
    st.builds(
        HostPort, st.sampled_from(["", ANY, HOME, "10.0.0.1"]), st.sampled_from(["TCP", "UDP"]), st.integers(1, 3)
    ),
    min_size=1,
    max_size=3,
)


def conflicts(one: HostPort, other: HostPort) -> bool:
    """The rule, written another way."""
    addresses = {ANY if port.ip == "" else port.ip for port in (one, other)}
    same = (one.protocol, one.port) == (other.protocol, other.port)
    return same and (len(addresses) == 1 or ANY in addresses)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ports = Tables(ResourceNames()).fact(HostPorts)
        self.pods: list[tuple[int, frozenset[HostPort]]] = []

    @rule(row=st.integers(0, 3), ports=PORTS)
    def pod_comes(self, row: int, ports: frozenset[HostPort]) -> None:
        self.ports.book(row, ports, 1)
        self.pods.append((row, ports))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        row, ports = self.pods.pop(data.draw(st.integers(0, len(self.pods) - 1)))
        self.ports.book(row, ports, -1)

    @invariant()
    def conflicts_are_those_with_the_pods_there(self) -> None:
        for wanted in (HostPort("", "TCP", 1), HostPort(HOME, "UDP", 2), HostPort("10.0.0.1", "TCP", 3)):
            expected = {row for row, ports in self.pods if any(conflicts(wanted, port) for port in ports)}
            assert set(np.flatnonzero(self.ports.in_conflict(frozenset({wanted}), ALL_ROWS)).tolist()) == expected


TestHistories = Histories.TestCase
