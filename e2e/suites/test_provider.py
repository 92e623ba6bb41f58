"""Which cluster a run gets, and that it is never one that was not named."""

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.control_plane import provider
from tests.support.repository import ROOT


def test_by_default_it_is_a_cluster_of_our_own() -> None:
    assert isinstance(provider.chosen({"KUBECONFIG": "/somebody/else"}), provider.Local)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        pytest.param({"E2E_PROVIDER": "kind"}, "kind is not built yet; choose one of: local, existing", id="kind"),
        pytest.param({"E2E_PROVIDER": "minikube"}, "minikube is not built; choose", id="unknown"),
        pytest.param({"E2E_PROVIDER": "existing"}, "needs E2E_KUBECONFIG and E2E_CONTEXT", id="nothing named"),
        pytest.param(
            {"E2E_PROVIDER": "existing", "E2E_KUBECONFIG": "/dev/null"}, "needs E2E_CONTEXT:", id="no context"
        ),
        pytest.param(
            {"E2E_PROVIDER": "existing", "E2E_KUBECONFIG": "/absent", "E2E_CONTEXT": "c"}, "not a file", id="no file"
        ),
    ],
)
def test_a_choice_that_cannot_be_had_is_refused_with_the_reason(environment: dict[str, str], message: str) -> None:
    with pytest.raises(provider.NoSuchProvider, match=message):
        provider.chosen(environment)


def test_on_an_existing_cluster_only_marked_tests_run(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    named = {"E2E_PROVIDER": "existing", "E2E_KUBECONFIG": str(kubeconfig), "E2E_CONTEXT": "c"}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "e2e"]

    answer = subprocess.run(collect, cwd=ROOT, env={"PATH": "", **named}, capture_output=True, text=True, check=True)

    assert "test_binding.py::" in answer.stdout
    assert "test_cluster.py::" not in answer.stdout
    assert "deselected" in answer.stdout
