"""A container's part of its cards, and a description filled in with it."""

import pytest

from config.settings.isolation import IsolationMechanism
from deviceplugin.cdi.edits import BindMount
from deviceplugin.isolation.fill import additions
from tests.support.node.container_shares import share_of


def described(**fields: object) -> IsolationMechanism:
    return IsolationMechanism.model_validate(fields, by_alias=True, by_name=False)


def test_each_text_has_the_values_of_the_container() -> None:
    mechanism = described(
        environment={"LIMIT": "{mib}M of {index}", "FIXED": "1"},
        mounts=[{"hostPath": "/run/{uuid}", "containerPath": "/in/{container}", "readOnly": False}],
        deviceNodes=["/dev/null"],
        hooks=[{"hookName": "createContainer", "path": "/bin/h", "args": ["h", "{pod_uid}"]}],
    )
    made = additions(mechanism, share_of(2, name="p"), "/s")
    assert made.env == {"LIMIT": "2048M of 0", "FIXED": "1"}
    assert made.mounts == (BindMount("/run/GPU-0000", "/in/c0", read_only=False),)
    assert made.edits().wire() == {
        "env": ["LIMIT=2048M of 0", "FIXED=1"],
        "mounts": [
            {"hostPath": "/run/GPU-0000", "containerPath": "/in/c0", "options": ["rw", "nosuid", "nodev", "bind"]}
        ],
        "hooks": [{"hookName": "createContainer", "path": "/bin/h", "args": ["h", "uid-p"]}],
        "deviceNodes": [{"path": "/dev/null"}],
    }


def test_directories_are_of_a_container_or_of_the_node() -> None:
    mechanism = described(
        mounts=[
            {"directory": "container", "containerPath": "/cache"},
            {"directory": "node", "containerPath": "/locks"},
            {"content": "text", "containerPath": "/etc/file"},
        ]
    )
    (cache, locks, file), (other_cache, other_locks, other_file) = (
        [mount.host_path for mount in additions(mechanism, share_of(name=name), "/s").mounts] for name in ("p", "q")
    )
    assert cache.startswith("/s/pods/uid-p/c0/")
    assert other_cache.startswith("/s/pods/uid-q/c0/")
    assert (locks, file) == (other_locks, other_file)
    assert len({locks, file}) == 2


@pytest.mark.parametrize(
    ("units", "cards", "asked", "percent"),
    [
        pytest.param(4, 1, 0, 25, id="its share of the memory"),
        pytest.param(1, 1, 0, 6, id="rounded down"),
        pytest.param(16, 1, 0, 100, id="a whole card"),
        pytest.param(4, 1, 30, 30, id="what it asks of compute"),
        pytest.param(4, 2, 25, 13, id="spread over its cards, rounded up"),
        pytest.param(4, 1, 400, 100, id="never more than a card"),
    ],
)
def test_hundredths_of_a_card(units: int, cards: int, asked: int, percent: int) -> None:
    assert share_of(units, cards=cards, percent=asked).percent == percent


def test_a_share_too_small_for_a_hundredth_is_one() -> None:
    assert share_of(1, card_units=1000).percent == 1


def test_the_values_of_a_container_with_two_cards() -> None:
    assert share_of(4, cards=2, name="p").values() == {
        "units": "4",
        "mib": "4096",
        "percent": "25",
        "uuid": "GPU-0000,GPU-0001",
        "index": "0,1",
        "pod_uid": "uid-p",
        "container": "c0",
    }
