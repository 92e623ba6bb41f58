"""A description, filled in for one container."""

from config.settings.isolation import NONE, IsolationMechanism
from deviceplugin.cdi.edits import Additions, BindMount
from deviceplugin.isolation.fill import additions
from tests.support.node.container_shares import share_of


def described(**fields: object) -> IsolationMechanism:
    return IsolationMechanism.model_validate(fields, by_alias=True, by_name=False)


def test_without_isolation_a_container_gets_nothing() -> None:
    assert additions(NONE, share_of(), "/s") == Additions()
    assert Additions().edits().wire() == {}


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
