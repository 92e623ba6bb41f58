"""The directories of CDI specs: ours appear whole and go when unused, others' stay."""

import json
from pathlib import Path

import pytest

from deviceplugin.cdi.edits import Edits
from deviceplugin.cdi.spec import container_spec
from deviceplugin.cdi.spec_files import NvidiaSpecTree, SpecFiles, generate_nvidia

H, OTHER = "0123456789abcdef", "fedcba9876543210"
NVIDIA = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "GPU-a", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
}


def one(device: str, value: str = "1") -> dict[str, object]:
    return dict(container_spec(device, [Edits(env={"A": value})]))


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_spec_of_a_device_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = SpecFiles(tmp_path / "cdi").write(H, one(H))
    assert path == tmp_path / "cdi" / f"gpushare-{H}.json"
    assert json.loads(path.read_text()) == one(H)
    assert list(path.parent.iterdir()) == [path]


def test_who_reads_while_it_is_replaced_reads_the_old_one_whole(tmp_path: Path) -> None:
    files = SpecFiles(tmp_path)
    with files.write(H, one(H, "old")).open() as reader:
        files.write(H, one(H, "new"))
        assert json.load(reader) == one(H, "old")
    assert json.loads((tmp_path / f"gpushare-{H}.json").read_text()) == one(H, "new")


def test_unused_specs_are_removed_and_files_of_others_stay(tmp_path: Path) -> None:
    others = ["nvidia.yaml", "gpushare-notes.json", f"gpushare-{H}.yaml", f"other-gpushare-{H}.json"]
    for name in others:
        (tmp_path / name).write_text("{}")
    files = SpecFiles(tmp_path)
    files.write(H, one(H))
    files.write(OTHER, one(OTHER))
    present = files.present()
    assert set(present) == {H, OTHER}
    assert files.remove({H: present[H]}) == [H]
    assert {path.name for path in tmp_path.iterdir()} == {*others, f"gpushare-{OTHER}.json"}


def test_a_spec_that_was_replaced_meanwhile_stays(tmp_path: Path) -> None:
    files = SpecFiles(tmp_path)
    files.write(H, one(H))
    before = files.present()
    files.write(H, one(H, "new"))
    assert files.remove(before) == []
    assert set(files.present()) == {H}


@pytest.mark.parametrize("device", ["", "../etc/passwd", H.upper(), H + "0"])
def test_only_a_device_name_of_ours_names_a_file(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValueError, match="is not a device name of the plugin"):
        SpecFiles(tmp_path).write(device, {})


def test_nvidias_specs_are_read_from_every_directory_in_order(tmp_path: Path) -> None:
    etc, run = tmp_path / "etc", tmp_path / "run"
    for directory, version in ((etc, "0.5.0"), (run, "0.6.0")):
        directory.mkdir()
        (directory / "nvidia.json").write_text(json.dumps({**NVIDIA, "cdiVersion": version}))
    (run / "README.txt").write_text("kind: nvidia.com/gpu")
    SpecFiles(run).write(H, one(H))
    found = NvidiaSpecTree([etc, run, tmp_path / "none"]).read()
    assert [spec.edits.version for spec in found.specs] == [(0, 5, 0), (0, 6, 0)]
    assert found.problems == ()


def test_a_spec_that_cannot_be_read_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: nvidia.com/gpu\na: [")
    (tmp_path / "b.yaml").write_bytes(b"nvidia.com/gpu\xff")
    (tmp_path / "c.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d.json").write_text(json.dumps(NVIDIA))
    (tmp_path / "e.json").write_text(" " * 5_000_000)
    found = NvidiaSpecTree([tmp_path]).read()
    assert [spec.source for spec in found.specs] == [str(tmp_path / "d.json")]
    unreadable = ("a.yaml", "b.yaml", "c.json", "e.json")
    assert [name for name, problem in zip(unreadable, found.problems, strict=True) if name in problem] == [*unreadable]


def test_a_directory_that_cannot_be_read_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    """As where SELinux denies it."""
    unreadable = tmp_path / ("x" * 300)
    (tmp_path / "nvidia.json").write_text(json.dumps(NVIDIA))
    found = NvidiaSpecTree([unreadable, tmp_path]).read()
    assert [Path(spec.source).name for spec in found.specs] == ["nvidia.json"]
    assert found.problems == (f"{unreadable} cannot be read: File name too long",)


def test_specs_of_others_are_not_parsed_and_none_is_parsed_twice(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"vendor-{number}.yaml").write_text("kind: example.com/nic\ndevices: [")
    own = tmp_path / "nvidia.json"
    own.write_text(json.dumps(NVIDIA))
    tree = NvidiaSpecTree([tmp_path])
    (before,), (again,) = tree.read().specs, tree.read().specs
    assert (again is before, tree.read().problems) == (True, ())
    own.write_text(json.dumps(NVIDIA) + " ")
    (changed,) = tree.read().specs
    assert changed is not before


def test_of_more_specs_than_anybody_has_the_first_are_read_and_the_rest_is_told(tmp_path: Path) -> None:
    for number in range(1030):
        (tmp_path / f"v{number:04}.json").touch()
    (problem,) = NvidiaSpecTree([tmp_path]).read().problems
    assert problem == f"{tmp_path} has 1030 CDI specs; only the first 1024 by name are read"


def test_nvidia_ctk_generates_the_spec_of_all_cards_by_uuid(tmp_path: Path) -> None:
    (tmp_path / "made").write_text(json.dumps(NVIDIA))
    copy = f'case $a in --output=*) cp {tmp_path}/made "${{a#--output=}}";; esac'
    ctk = program(tmp_path / "nvidia-ctk", f'echo "$@" > {tmp_path}/args; for a; do {copy}; done')
    output = tmp_path / "cdi.json"
    assert generate_nvidia(output, timeout_s=20, ctk=ctk) == ""
    assert (
        tmp_path / "args"
    ).read_text() == f"cdi generate --output={output} --format=json --device-name-strategy=uuid\n"
    assert [spec.devices[0].name for spec in NvidiaSpecTree([tmp_path]).read().specs] == ["GPU-a"]


@pytest.mark.parametrize(
    ("script", "timeout_s", "message"),
    [
        pytest.param("echo no driver >&2; exit 3", 20, "exited with code 3: no driver", id="fails"),
        pytest.param("exec sleep 60", 0.2, "took longer than 0.2 s", id="hangs"),
    ],
)
def test_why_nvidia_ctk_failed_is_reported(tmp_path: Path, script: str, timeout_s: float, message: str) -> None:
    ctk = program(tmp_path / "nvidia-ctk", script)
    assert message in generate_nvidia(tmp_path / "out.json", timeout_s=timeout_s, ctk=ctk)


def test_a_missing_nvidia_ctk_is_reported(tmp_path: Path) -> None:
    missing = str(tmp_path / "nvidia-ctk")
    assert generate_nvidia(tmp_path / "out.json", timeout_s=1, ctk=missing) == f"{missing} is not installed here"


def test_a_file_that_is_not_a_program_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "nvidia-ctk"
    broken.write_text("#!/nowhere/sh\n")
    broken.chmod(0o755)
    assert "cannot be run" in generate_nvidia(tmp_path / "out.json", timeout_s=1, ctk=str(broken))
