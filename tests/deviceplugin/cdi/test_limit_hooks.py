"""NVIDIA's hook for memory limits: found by its card's UUID, taken for that card alone, left out without limits."""

import json

import pytest

from deviceplugin.cdi import limit_hooks
from deviceplugin.cdi.edits import Edits, combined
from deviceplugin.cdi.nvidia_spec import NvidiaSpec, hookless, nvidia_spec, real_cards
from deviceplugin.driver.cards import DriverCard

A, B = (
    DriverCard(index=index, uuid=f"GPU-{name}", model="M", memory_mib=16384, minor=index)
    for index, name in enumerate("ab")
)
LDCACHE = {"hookName": "createContainer", "path": "/h", "args": ["nvidia-cdi-hook", "update-ldcache"]}


def hook(*uuids: str, name: str = limit_hooks.NAME) -> dict[str, object]:
    args = ["nvidia-cdi-hook", name, "--driver-root", "/", *(arg for uuid in uuids for arg in ("--gpu-id", uuid))]
    return {"hookName": "createRuntime", "path": "/usr/bin/nvidia-cdi-hook", "args": args}


def device(name: str, minor: int, *hooks: dict[str, object]) -> dict[str, object]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"}], "hooks": list(hooks)}}


def spec(*devices: dict[str, object], hooks: tuple[dict[str, object], ...] = ()) -> NvidiaSpec:
    library = {"hostPath": "/usr/lib/libcuda.so", "containerPath": "/usr/lib/libcuda.so"}
    shared = {"mounts": [library], "hooks": [LDCACHE, *hooks]}
    whole = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": shared}
    found = nvidia_spec("f", json.dumps(whole))
    assert found is not None
    return found


BY_UUID = spec(device("GPU-a", 0, hook("GPU-a")), device("GPU-b", 1, hook("GPU-b")))
BY_INDEX = spec(device("0", 0, hook("GPU-a")), device("1", 1, hook("GPU-b")))
ALL = spec({"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}],
                                              "hooks": [hook("GPU-a"), hook("GPU-b")]}})  # fmt: skip


@pytest.mark.parametrize("found", [BY_UUID, BY_INDEX, ALL], ids=["by UUID", "by index", "one device for all"])
def test_a_card_comes_with_its_own_hook_and_with_no_other_cards(found: NvidiaSpec) -> None:
    assert limit_hooks.limited(real_cards([A], [found])) == {"GPU-a"}
    assert limit_hooks.limited(real_cards([A, B], [found])) == {"GPU-a", "GPU-b"}
    assert hookless([A, B], [found]) == frozenset()


def test_once_indexes_have_moved_the_hook_is_still_the_cards_own() -> None:
    """The spec was written when B was card 0: nodes go by today's minor, the hook by the UUID."""
    moved = spec(device("0", 0, hook("GPU-b")), device("1", 1, hook("GPU-a")))
    edits = real_cards([A], [moved])
    assert limit_hooks.limited(edits) == {"GPU-a"}
    assert list(edits.lists["deviceNodes"]) == [{"path": "/dev/nvidia0"}]


@pytest.mark.parametrize(
    "hooks",
    [
        pytest.param((), id="an older toolkit"),
        pytest.param((hook("GPU-a", name="other-hook"),), id="another hook for the card"),
        pytest.param((hook("GPU-b"),), id="another card's"),
        pytest.param((hook(),), id="no card's"),
        pytest.param((hook("GPU-a", "GPU-b"),), id="one for several cards"),
        pytest.param(({"hookName": "createRuntime", "path": "/h", "args": limit_hooks.NAME},), id="arguments as text"),
    ],
)
def test_a_card_without_a_hook_of_its_own_has_none(hooks: tuple[dict[str, object], ...]) -> None:
    assert limit_hooks.of_card("GPU-a", [Edits(lists={"hooks": hooks})]).wire() == {}
    unshared = spec(device("GPU-a", 0), device("all", 0, *hooks))
    assert hookless([A], [unshared]) == {"GPU-a"}


def test_a_card_that_no_spec_injects_is_uncovered_not_hookless() -> None:
    assert hookless([A], []) == frozenset()


@pytest.mark.parametrize("args", [["--gpu-id", "GPU-a"], ["--gpu-id=GPU-a"]])
def test_the_flag_has_two_spellings(args: list[str]) -> None:
    edits = Edits(
        lists={"hooks": [{"hookName": "createRuntime", "path": "/h", "args": ["h", limit_hooks.NAME, *args]}]}
    )
    assert limit_hooks.limited(edits) == {"GPU-a"}


def test_without_limits_this_hook_alone_is_left_out() -> None:
    edits = limit_hooks.without(combined([real_cards([A, B], [BY_UUID])]))
    assert list(edits.lists["hooks"]) == [LDCACHE]
    assert edits.lists["deviceNodes"] == real_cards([A, B], [BY_UUID]).lists["deviceNodes"]
    nothing = Edits(env={"A": "1"})
    assert limit_hooks.without(nothing).wire() == nothing.wire()
