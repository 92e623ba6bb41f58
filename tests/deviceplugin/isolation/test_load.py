"""Which description the configuration asks for; one that this node cannot carry out is refused at the start."""

from pathlib import Path

import pytest

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.isolation import NONE
from config.settings.mistakes import ConfigurationError
from deviceplugin.isolation.make import mechanism_of, mechanisms_of

HEAD = "apiVersion: gpushare/v1alpha1\nkind: IsolationMechanism\n"


def configured(**fields: object) -> DevicePluginConfiguration:
    return DevicePluginConfiguration.model_validate({"nodeName": "n"} | fields, by_alias=True, by_name=False)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libvgpu.so"
    path.write_bytes(b"\x7fELF and so on")
    path.chmod(0o755)
    return path


def with_library(path: Path) -> DevicePluginConfiguration:
    return configured(isolation="hami-core", hamiCore={"library": str(path)})


def test_limits_by_the_driver_add_no_description() -> None:
    assert mechanisms_of(configured(), "") == {"driver": NONE, "none": NONE}
    assert mechanisms_of(configured(isolation="driver"), "none") == {"driver": NONE, "none": NONE}


def test_with_auto_the_fallback_has_to_be_possible_too(library: Path) -> None:
    library.chmod(0o777)
    with pytest.raises(ConfigurationError, match=r"expected .* writable only by its owner"):
        mechanisms_of(configured(isolationFallback="hami-core", hamiCore={"library": str(library)}), "")


def test_a_kept_kind_that_is_no_longer_possible_is_left_out(tmp_path: Path) -> None:
    assert mechanisms_of(configured(isolation="none"), str(tmp_path / "gone.yaml")) == {"none": NONE}
    assert mechanisms_of(configured(isolation="none"), "hami-core") == {"none": NONE}
    assert mechanisms_of(configured(isolation="none"), "mps").keys() == {"none", "mps"}


def test_those_that_come_with_the_plugin(library: Path) -> None:
    assert mechanism_of(configured(isolation="mps")).preparation == "mps"
    assert mechanism_of(with_library(library)).mounts[0].host_path == str(library)


def test_a_library_that_others_may_write_to_is_refused(library: Path) -> None:
    library.chmod(0o775)
    with pytest.raises(ConfigurationError, match=r"hamiCore\.library: expected .* to be writable only by its owner"):
        mechanism_of(with_library(library))


def test_a_library_in_a_directory_that_others_may_write_to_is_refused(library: Path) -> None:
    library.parent.chmod(0o777)
    with pytest.raises(ConfigurationError, match="to be writable only by its owner"):
        mechanism_of(with_library(library))


def test_what_is_no_library_is_refused(library: Path) -> None:
    library.write_text("#!/bin/sh")
    with pytest.raises(ConfigurationError, match="not an ELF file"):
        mechanism_of(with_library(library))
    library.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        mechanism_of(with_library(library))


def test_a_description_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(HEAD + "environment: {LIMIT: '{mib}'}\nhostIPC: true\n", encoding="utf-8")
    found = mechanism_of(configured(isolation=str(file)))
    assert (found.environment, found.host_ipc) == ({"LIMIT": "{mib}"}, True)


def test_every_mistake_of_a_description_is_named_with_what_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(HEAD + "environment: {A: '{namespace}'}\nmounts: [{containerPath: /a}]\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        mechanism_of(configured(isolation=str(file)))
    told = str(caught.value)
    assert "{units}, {mib}, {percent}, {uuid}, {index}, {pod_uid}, {container}, found '{namespace}'" in told
    assert "expected exactly one of hostPath, directory, content" in told


def test_hooks_need_cdi(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(HEAD + "hooks: [{hookName: poststop, path: /h}]\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="hooks: needs mode: cdi, found mode: auto"):
        mechanism_of(configured(isolation=str(file)))
    assert mechanism_of(configured(isolation=str(file), mode="cdi")).hooks
