"""Files of Debian packages, with an `apt-get` and a `dpkg` on PATH that the test wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.control_plane import cache

DOWNLOADS = '[ "$3" = download ] && : >"$4_1.0_amd64.deb"'
UNPACKS = '/bin/mkdir -p "$3/bin" && echo made >"$3/bin/program"'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a program with that body on PATH, beside no other, and an empty cache in place."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def write(name: str, body: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return write


def silent(_: str) -> None:
    """Take no line of progress."""


def test_a_package_is_fetched_once(program: Callable[[str, str], None]) -> None:
    program("apt-get", DOWNLOADS)
    program("dpkg", UNPACKS)
    first = cache.debian_package("some-package", silent)
    program("apt-get", "exit 1")

    assert cache.debian_package("some-package", silent) == first
    assert (first / "bin" / "program").read_text() == "made\n"


def test_without_apt_it_says_which_package_is_needed(program: Callable[[str, str], None]) -> None:
    del program
    with pytest.raises(cache.PackageUnavailable, match=r"^apt-get is not on PATH: .* some-package are needed$"):
        cache.debian_package("some-package", silent)


def test_a_package_that_cannot_be_fetched_leaves_nothing_and_says_why(
    program: Callable[[str, str], None], tmp_path: Path
) -> None:
    program("apt-get", "echo W: warned >&2; echo E: no network >&2; exit 100")
    with pytest.raises(cache.PackageUnavailable, match=r"fetch the Debian package some-package: E: no network$"):
        cache.debian_package("some-package", silent)
    assert [path.name for path in (tmp_path / "cache" / "gpushare-scheduler" / "debian").iterdir()] == [
        ".some-package.lock"
    ]
