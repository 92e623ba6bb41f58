"""Settings of every test: hypothesis, and a home directory that is nobody's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Few examples, each time the same: a change must not fail for a history that it has nothing to do with. The search for
# new ones is nightly: `--hypothesis-profile=nightly`; a failure prints the blob that repeats it.
settings.register_profile("project", deadline=None, print_blob=True, derandomize=True, max_examples=50)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=1_000)
settings.load_profile("project")


@pytest.fixture(scope="session", autouse=True)
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No `~/.kube/config`, whatever a test does to KUBECONFIG; the cache stays, so that nothing is built anew."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
        environment.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield
