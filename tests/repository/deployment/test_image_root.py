"""The files of the image that no program of ours loads by itself."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def image_root() -> ModuleType:
    """deploy/images/root.py, which stands alone in the build."""
    spec = importlib.util.spec_from_file_location("image_root", ROOT / "deploy" / "images" / "root.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_libraries_that_the_driver_needs_are_copied_whatever_python_loads(
    image_root: ModuleType, tmp_path: Path
) -> None:
    names = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")
    for name in names:
        (tmp_path / name).touch()

    found = image_root.needed_by_the_driver([tmp_path / "libc.so.6", tmp_path / "libz.so.1"])

    assert found == [tmp_path / name for name in names[1:]]


def test_a_base_without_one_of_them_makes_no_image(image_root: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "libc.so.6").touch()
    with pytest.raises(SystemExit, match=r"not beside .*libc\.so\.6: libdl\.so\.2, libm\.so\.6"):
        image_root.needed_by_the_driver([tmp_path / "libc.so.6"])
