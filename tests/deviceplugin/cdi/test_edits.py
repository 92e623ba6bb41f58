"""Container edits: parts combine without losing, doubling or overruling what they should not."""

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.cdi.edits import Edits, combined, device_nodes, from_wire, read_only_mount

TEXTS = st.sampled_from(["a", "b", "c"])
EDITS = st.builds(
    Edits,
    env=st.dictionaries(TEXTS, TEXTS),
    lists=st.dictionaries(TEXTS, st.lists(TEXTS, min_size=1, unique=True)),
    objects=st.dictionaries(st.sampled_from(["x", "y"]), TEXTS),
    version=st.sampled_from([(0, 5, 0), (0, 7, 0), (1, 1, 0)]),
)


def test_nothing_adds_nothing() -> None:
    assert combined([]).wire() == {}


def test_a_later_part_wins_a_variable() -> None:
    both = combined([Edits(env={"A": "1", "B": "1"}), Edits(env={"A": "2"})])
    assert both.wire() == {"env": ["A=2", "B=1"]}


def test_what_two_parts_bring_is_brought_once_and_in_order() -> None:
    both = combined([device_nodes(["/dev/x", "/dev/y"]), device_nodes(["/dev/y", "/dev/z"])])
    assert both.wire() == {"deviceNodes": [{"path": "/dev/x"}, {"path": "/dev/y"}, {"path": "/dev/z"}]}


def test_the_highest_version_that_a_part_needs_is_needed() -> None:
    assert combined([Edits(), Edits(version=(0, 10, 0)), Edits(version=(0, 7, 0))]).version == (0, 10, 0)


def test_a_mount_of_the_host_is_read_only() -> None:
    (mount,) = read_only_mount("/host", "/inside").lists["mounts"]
    assert mount == {
        "hostPath": "/host",
        "containerPath": "/inside",
        "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
    }


def test_the_edits_of_a_spec_come_out_as_they_went_in() -> None:
    document = {
        "env": ["A=1", "B=x=y"],
        "deviceNodes": [{"path": "/dev/x", "major": 195}],
        "hooks": [{"hookName": "createContainer", "path": "/hook", "args": ["hook", "update-ldcache"]}],
        "additionalGids": [44],
        "intelRdt": {"closID": "c"},
        "netDevices": [{"hostInterfaceName": "ib0"}],
    }
    edits = from_wire(document, (1, 1, 0))
    assert edits.wire() == document
    assert edits.version == (1, 1, 0)


def test_an_old_spec_still_needs_the_version_that_our_names_need() -> None:
    assert from_wire({}, (0, 3, 0)).version == (0, 5, 0)


@given(st.lists(EDITS), st.lists(EDITS))
def test_it_makes_no_difference_which_parts_are_combined_first(some: list[Edits], others: list[Edits]) -> None:
    assert combined([combined(some), combined(others)]) == combined([*some, *others])


class Compared(dict[str, str]):
    """Counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = None


def test_ten_thousand_mounts_are_not_each_compared_with_all_others() -> None:
    mounts = [Compared(hostPath=f"/lib/{number}") for number in range(10_000)]

    assert (
        len(combined([Edits(lists={"mounts": mounts}), Edits(lists={"mounts": mounts[:10]})]).lists["mounts"]) == 10_000
    )
    assert Compared.times < 100_000
