"""Names of the objects that both programs make are valid, whatever the names of pods and nodes are.

Events are the only objects whose names are made of others. Leases have theirs from the configuration, which is checked;
CDI specs and devices have theirs from a digest; bindings, evictions and reviews have the pod's own, or none.
Source of the rules: apimachinery, IsDNS1123Subdomain; container-device-interface, pkg/parser, ValidateDeviceName.
"""

import re
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deviceplugin.cdi import spec
from scheduler.kube.events import Regarding, Reporter
from scheduler.kube.port import ApiRejected, EventRecord
from scheduler.testing.cluster.world import EventLog

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = re.compile(rf"{LABEL}(\.{LABEL})*", re.ASCII)
DEVICE: Final = re.compile(r"[A-Za-z0-9]([-_.:A-Za-z0-9]*[A-Za-z0-9])?", re.ASCII)
LONGEST: Final = 253

labels = st.from_regex(rf"\A{LABEL}\Z").filter(lambda label: len(label) <= 63)
# Long ones above all: what is cut may end anywhere.
names = st.lists(labels | st.just("a" * 62) | st.just("a-" * 20 + "a"), min_size=1, max_size=40).map(
    lambda parts: ".".join(parts)[:LONGEST].rstrip("-.")
)


def is_valid(name: str) -> bool:
    return len(name) <= LONGEST and SUBDOMAIN.fullmatch(name) is not None


def event(name: str, kind: str = "Pod", now_ns: int = 2**61, instance: str = "instance") -> EventRecord:
    about = Regarding(kind, "ns" if kind == "Pod" else "", name, "uid")
    return Reporter("controller", instance).event(about, warning=True, reason="R", action="A", note="", now_ns=now_ns)


@given(names, st.sampled_from(["Pod", "Node"]), st.integers(1, 2**63 - 1))
@example("p" * 253, "Pod", 2**63 - 1)
@example("p" * 229 + "-" * 23 + "p", "Pod", 1)
@example("p" * 229 + ".p" * 12, "Node", 2**61)
def test_the_name_of_an_event_is_valid_and_begins_as_that_of_its_object(name: str, kind: str, now_ns: int) -> None:
    assert is_valid(name)
    made = event(name, kind, now_ns)
    assert is_valid(made.name)
    assert made.name.rpartition(".")[0].startswith(name[:200])
    EventLog(lambda _: True).create(made)


@given(names)
def test_two_events_on_one_object_have_different_names(name: str) -> None:
    assert event(name, now_ns=2**61).name != event(name, now_ns=2**61 + 1).name


@given(st.sets(st.text(max_size=80), min_size=1, max_size=8))
def test_the_name_of_a_cdi_device_is_valid_whatever_the_ids_are(ids: set[str]) -> None:
    assert DEVICE.fullmatch(spec.device_name(ids))


@pytest.mark.parametrize("name", ["", "P", "p..q", "p-.q", "-p", "p.", "p_q", "p" * 254])
def test_the_server_in_memory_refuses_what_is_not_valid(name: str) -> None:
    assert not is_valid(name)
    with pytest.raises(ApiRejected, match=r"metadata\.name"):
        EventLog(lambda _: True).create(replace(event("p"), name=name))
