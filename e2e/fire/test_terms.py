"""Two leaders at a time are found when they are planted: a check that cannot fail shows nothing."""

import asyncio
import json
from itertools import count
from typing import Final

import pytest

from e2e.fire import reading
from e2e.fire.proxy import Answer, Passing
from e2e.fire.reading import Json
from e2e.fire.terms import Sent, Terms

LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-scheduler"


async def _nowhere(_: Passing) -> Answer:
    raise AssertionError


async def _not_at_all(_: Passing) -> None:
    raise AssertionError


class Told:
    """Requests of replicas one and two, and what the store shows of them."""

    def __init__(self) -> None:
        self.sent = Sent()
        self.terms = Terms()
        self._revisions = count(1)

    def leads(self, replica: str, process: str = "") -> None:
        """It writes the Lease, and the store has it."""
        holder = process or f"{replica}-a"
        self._request(replica, "PUT", LEASE, {"spec": {"holderIdentity": holder}})
        self.edited(holder)

    def edited(self, holder: str, **annotations: str) -> None:
        lease = {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}}
        self.terms.lease(next(self._revisions), lease)

    def gone(self) -> None:
        self.terms.lease(next(self._revisions), None)

    def given_up(self) -> None:
        self.edited("", **{"gpushare/pods-seen": "7"})

    def sends(self, replica: str, uid: str) -> Json:
        """A Binding, which the store has not got yet; the pod as it would be bound."""
        written = {reading.MEM_ASSUME_TIME: f"of {replica}"}
        metadata = {"name": uid, "namespace": "d", "uid": uid, "annotations": written}
        self._request(replica, "POST", f"/api/v1/namespaces/d/pods/{uid}/binding", {"metadata": metadata})
        limits = {"limits": {reading.GPU_MEM: "1"}}
        spec = {"schedulerName": "gpushare-scheduler", "containers": [{"name": "c", "resources": limits}]}
        return {"metadata": metadata, "spec": spec | {"nodeName": "n"}}

    def binds(self, replica: str, uid: str) -> None:
        self.takes_effect(self.sends(replica, uid))

    def takes_effect(self, bound: Json) -> None:
        self.terms.bound(next(self._revisions), bound)

    def faults(self) -> str:
        return " | ".join(self.terms.faults(self.sent))

    def _request(self, replica: str, method: str, path: str, body: Json) -> None:
        raw = json.dumps(body).encode()
        self.sent.note(replica, Passing(method, path, {}, raw, _nowhere, _not_at_all, asyncio.Event()))


@pytest.fixture
def told() -> Told:
    made = Told()
    made.leads("one")
    made.binds("one", "u")
    return made


def test_leaders_one_after_the_other_are_well(told: Told) -> None:
    told.given_up()
    told.leads("two")
    told.binds("two", "v")
    told.leads("one", "one-b")
    told.binds("one", "w")
    assert told.faults() == ""
    assert told.terms.leaders(told.sent) == ["one-a", "two-a", "one-b"]
    assert told.sent.replica_of("one-b") == "one"


def test_a_request_of_the_last_leader_after_one_of_the_next_is_found(told: Told) -> None:
    late = told.sends("one", "late")
    told.gone()
    told.leads("two")
    told.binds("two", "v")
    told.takes_effect(late)
    assert told.faults() == ("at 6: late is bound by one-a, which was replaced before by two-a, which has bound a pod")


def test_a_request_that_takes_effect_after_another_one_has_written_over_the_lease_is_found(told: Told) -> None:
    late = told.sends("one", "late")
    told.leads("two")
    told.takes_effect(late)
    assert told.faults() == "at 4: late is bound by one-a, which lost the Lease to two-a before"


def test_a_request_that_takes_effect_after_its_leader_has_given_up_is_found(told: Told) -> None:
    late = told.sends("one", "late")
    told.given_up()
    told.takes_effect(late)
    assert told.faults() == "at 4: late is bound by one-a, which gave the Lease up before"


@pytest.mark.parametrize("edited", [None, "", "somebody-else"])
def test_a_leader_may_go_on_until_it_knows_that_the_lease_was_taken_away(told: Told, edited: str | None) -> None:
    late = told.sends("one", "late")
    told.gone() if edited is None else told.edited(edited)
    told.leads("two")
    told.takes_effect(late)
    told.binds("two", "v")
    assert told.faults() == ""


def test_a_replica_that_binds_without_the_lease_is_found(told: Told) -> None:
    told.binds("two", "v")
    assert (
        told.faults() == "at 3: v is bound by a process that has not written the Lease, which has never held the Lease"
    )


def test_a_pod_that_nobody_has_bound_or_both_have_is_found(told: Told) -> None:
    told.leads("two")
    pod = told.sends("two", "v")
    told.takes_effect(pod | {"metadata": pod["metadata"] | {"uid": "x"}})
    pod["metadata"]["annotations"][reading.MEM_ASSUME_TIME] = "of one"
    told.sends("one", "v")
    told.sent.bindings["v", "of one"].add("two-a")
    told.takes_effect(pod)
    assert told.faults() == (
        "at 4: v is bound by requests of nobody | at 5: v is bound by requests of ['one-a', 'two-a']"
    )
