"""Libraries that the image has by intent."""

import importlib.util
from types import ModuleType

import pytest

from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def root() -> ModuleType:
    """The program that copies the image's files; it is part of no package."""
    spec = importlib.util.spec_from_file_location("image_root", ROOT / "deploy" / "images" / "root.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_libraries_that_nvidias_own_load_are_found_on_this_machine(root: ModuleType) -> None:
    found = root.named(root.OF_NVIDIAS_LIBRARIES)
    assert [path.name for path in found] == ["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"]
    assert all(path.exists() for path in found)


def test_an_image_without_one_of_them_is_not_made(root: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"libraries that are not here: libno\.so\.7"):
        root.named(["libm.so.6", "libno.so.7"])
