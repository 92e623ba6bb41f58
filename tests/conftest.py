"""Settings of every test: hypothesis, and a home directory that is nobody's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Examples are random on a developer's machine, so that every run searches; a failure prints the blob that repeats it.
# In CI they are the same each time: a change must not fail there for a history that it has nothing to do with.
settings.register_profile("project", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")


@pytest.fixture(scope="session", autouse=True)
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No `~/.kube/config`, whatever a test does to KUBECONFIG; the cache stays, so that nothing is built anew."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
        environment.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield
