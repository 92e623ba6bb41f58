"""Verification, one at a time, that pods still belong to the class in which they wait."""

from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import PodClaim, PodVolumes
from scheduler.state.changes import Change, ClusterEvents
from scheduler.state.minimum_request import NO_MINIMUM
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, in_vain, plenty, pod

PODS = int(Change.PODS)


def using(name: str, *claims: str, namespace: str = "default", priority: int = 0) -> Pod:
    volumes = PodVolumes(claims=tuple(PodClaim(claim, ephemeral=False) for claim in claims))
    return replace(pod(name, namespace=namespace, priority=priority), volumes=volumes)


def labelled(name: str, namespace: str, **labels: str) -> Pod:
    return replace(pod(name, namespace=namespace), labels=labels)


def waiting(*pods: Pod, wakes_on: int = ANY) -> ToyCluster:
    """Unschedulable pods of one class."""
    return in_vain(*pods, of_class=lambda _: "one class", wakes_on=wakes_on)


def changed(*claims: str, namespaces: tuple[str, ...] = ()) -> ClusterEvents:
    events = ClusterEvents()
    events.note_claims(("default", claim) for claim in claims)
    for name in namespaces:
        events.note_namespace(name)
    return events


def question(cluster: ToyCluster) -> tuple[str, str] | None:
    """(pod, content of the hint)."""
    cluster.queue.validate()
    hint = cluster.queue.next_hint(plenty)
    if hint is None:
        return None
    rows = "all rows" if hint.rows is None else str(sorted(hint.rows))
    return hint.pod.key.name, "signature" if hint.of_signature else rows


def test_the_pods_that_use_a_claim_are_asked_and_no_others() -> None:
    cluster = waiting(using("p0", "c0"), using("p1", "c1"), using("p2", "c2"))
    cluster.queue.note_events(changed("c1"))
    assert question(cluster) == ("p1", "signature")
    cluster.queue.reclassify(cluster.the_hint(), "another class", NO_MINIMUM)
    assert question(cluster) == ("p1", "all rows")
    cluster.queue.fits_not(cluster.the_hint(), wakes_on=ANY)
    assert question(cluster) is None


def test_a_class_whose_pod_still_belongs_to_it_is_asked_on_all_rows() -> None:
    cluster = waiting(using("p0", "c0"), using("p1", "c1"))
    cluster.queue.note_events(changed("c1"))
    cluster.queue.confirm(cluster.the_hint())
    assert question(cluster) == ("p0", "all rows")


def test_of_pods_that_use_the_same_claims_one_is_asked_and_the_next_when_that_has_moved() -> None:
    cluster = waiting(*(using(f"p{number}", "c") for number in range(3)))
    cluster.queue.note_events(changed("c"))
    for name in ("p0", "p1"):
        assert question(cluster) == (name, "signature")
        cluster.queue.reclassify(cluster.the_hint(), "another class", NO_MINIMUM)
    assert question(cluster) == ("p2", "signature")
    cluster.queue.confirm(cluster.the_hint())
    cluster.queue.fits_not(cluster.the_hint(), wakes_on=ANY)
    cluster.queue.fits_not(cluster.the_hint(), wakes_on=ANY)
    assert question(cluster) is None


def test_a_pod_that_leaves_before_it_is_asked_leaves_the_question_to_the_next() -> None:
    cluster = waiting(using("p0", "c"), using("p1", "c"))
    cluster.queue.note_events(changed("c"))
    assert question(cluster) == ("p0", "signature")
    cluster.queue.delete("p0")
    assert question(cluster) == ("p1", "signature")


def test_of_a_namespace_the_pods_are_asked_whatever_their_class_waits_for() -> None:
    pods = using("p0", namespace="red"), using("p1", namespace="blue"), labelled("p2", "red", tier="x")
    cluster = waiting(*pods, wakes_on=PODS)
    cluster.queue.note_events(changed(namespaces=("red",)))
    assert question(cluster) == ("p0", "signature")
    cluster.queue.confirm(cluster.the_hint())
    assert question(cluster) == ("p2", "signature")
    cluster.queue.reclassify(cluster.the_hint(), "another class", NO_MINIMUM)
    assert question(cluster) == ("p2", "all rows")
    cluster.queue.fits_not(cluster.the_hint(), wakes_on=ANY)
    assert question(cluster) is None


def test_of_pods_with_equal_labels_one_is_asked_and_the_next_when_that_has_moved_or_has_other_labels() -> None:
    cluster = waiting(*(labelled(f"p{number}", "red", tier="x") for number in range(3)))
    cluster.queue.note_events(changed(namespaces=("red",)))
    assert question(cluster) == ("p0", "signature")
    cluster.queue.reclassify(cluster.the_hint(), "another class", NO_MINIMUM)
    assert question(cluster) == ("p1", "signature")
    cluster.queue.add_or_update(labelled("p1", "red", tier="y"), 0.0)
    assert question(cluster) == ("p1", "signature")
    cluster.queue.confirm(cluster.the_hint())
    assert question(cluster) == ("p2", "signature")
    cluster.queue.confirm(cluster.the_hint())
    assert question(cluster) == ("p0", "all rows")
    cluster.queue.fits_not(cluster.the_hint(), wakes_on=ANY)
    assert question(cluster) is None


def test_questions_about_signatures_keep_a_pod_of_the_same_priority_waiting_no_longer_than_others() -> None:
    cluster = waiting(*(using(f"p{number}", f"c{number}") for number in range(100)))
    cluster.add(pod("newcomer"), pod("late", priority=1))
    cluster.queue.note_events(changed(*(f"c{number}" for number in range(100))))
    assert question(cluster) is None
    assert cluster.queue.pop(0.0) is not None
    asked = 0
    while (hint := cluster.queue.next_hint(plenty)) is not None:
        cluster.queue.confirm(hint) if hint.of_signature else cluster.queue.fits_not(hint, wakes_on=ANY)
        asked += 1
    assert asked == 64
    head = cluster.queue.first()
    assert head is not None
    assert head.key.name == "newcomer"


def test_a_namespace_that_changes_all_the_time_holds_up_pods_of_lower_priority_for_one_round_each() -> None:
    pods = [replace(pod(f"p{n}", namespace="red", priority=1), labels={"n": str(n)}) for n in range(100)]
    cluster = waiting(*pods, wakes_on=PODS)
    cluster.add(*(pod(f"late{n}") for n in range(3)))
    for number in range(3):
        asked = 0
        cluster.queue.note_events(changed(namespaces=("red",)))
        while (hint := cluster.queue.next_hint(plenty)) is not None and asked < 1000:
            cluster.queue.confirm(hint)
            cluster.queue.note_events(changed(namespaces=("red",)))
            asked += 1
        popped = cluster.queue.pop(0.0)
        assert (asked, popped and popped.pod.key.name) == (100, f"late{number}")
