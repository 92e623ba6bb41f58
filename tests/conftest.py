"""Settings of every test: hypothesis, and a home directory that is nobody's."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

# Examples are random here and in CI, so that every run searches; a failure prints the blob that repeats it. Without
# this profile hypothesis takes its own in CI, where the examples are always the same.
settings.register_profile("project", deadline=None, print_blob=True, derandomize=False)
settings.load_profile("project")


@pytest.fixture(scope="session", autouse=True)
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No `~/.kube/config`, whatever a test does to KUBECONFIG."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield
