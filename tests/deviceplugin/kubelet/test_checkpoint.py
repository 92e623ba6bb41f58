"""The kubelet's checkpoint: what it says is read, what it does not say is not made up."""

import json

import pytest

from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError, parse


def text(entries: object, **data: object) -> bytes:
    return json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}} | data, "Checksum": 1}).encode()


def wire(**changed: object) -> dict[str, object]:
    plain = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"-1": ["a", "b"]}, "AllocResp": ""}
    return plain | changed


def without(field: str) -> dict[str, object]:
    return {key: value for key, value in wire().items() if key != field}


def test_an_entry_is_read() -> None:
    found = parse(text([wire(AllocResp="AQI=")], RegisteredDevices={"r": ["a", "b", "c"]}))
    assert found == (CheckpointEntry("u", "c", "r", frozenset("ab"), "AQI="),)
    assert found[0].answer() == b"\x01\x02"


def test_ids_of_all_numa_nodes_are_one_set() -> None:
    (found,) = parse(text([wire(DeviceIDs={"0": ["a"], "1": ["b", "c"], "2": None})]))
    assert found.ids == frozenset("abc")


@pytest.mark.parametrize("nothing", [None, []])
def test_a_kubelet_without_devices_has_no_entries(nothing: object) -> None:
    assert parse(text(nothing)) == ()


@pytest.mark.parametrize("nothing", [{"DeviceIDs": None}, {"DeviceIDs": {}}, {"AllocResp": None}])
def test_what_an_entry_says_is_null_is_empty(nothing: dict[str, object]) -> None:
    (found,) = parse(text([wire(**nothing)]))
    assert found.ids == (frozenset() if "DeviceIDs" in nothing else frozenset("ab"))
    assert found.answer() == b""


def test_fields_of_a_newer_kubelet_are_left_alone() -> None:
    assert len(parse(text([wire(Health="ok")], Newer={"a": 1}))) == 1


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no data"),
        pytest.param(b'{"Data":{}}', id="no entries"),
        pytest.param(text([{"PodUID": "u"}]), id="half an entry"),
        pytest.param(text([without("DeviceIDs")]), id="ids under another name"),
        pytest.param(text([without("AllocResp")]), id="answers under another name"),
        pytest.param(b'{"Data":{"PodDeviceEntries":[]}}', id="resources under another name"),
        pytest.param(text([wire(DeviceIDs={"node0": ["a"]})]), id="a NUMA node that is not a number"),
        pytest.param(text([wire(DeviceIDs=["a"])]), id="the form before 1.20"),
        pytest.param(b"[" * 100_000, id="nested too deep"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(broken: bytes) -> None:
    with pytest.raises(CheckpointError, match="kubelet checkpoint cannot be read"):
        parse(broken)


@pytest.mark.parametrize("answer", ["?", "é"])
def test_an_answer_that_is_not_base64_is_refused_when_it_is_read(answer: str) -> None:
    (found,) = parse(text([wire(AllocResp=answer)]))
    with pytest.raises(CheckpointError, match="cannot read the response recorded for container c"):
        found.answer()
