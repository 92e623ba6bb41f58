"""Which cluster a run gets, and that it is never one that was not named."""

import os
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
        pytest.param({"E2E_PROVIDER": "minikube"}, "minikube is none; choose one of: local, existing", id="unknown"),
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


def test_kind_is_the_cluster_of_make_kind_and_refused_before_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(provider.NoSuchProvider, match="run make kind first"):
        provider.chosen({"E2E_PROVIDER": "kind"})
    provider.kind_kubeconfig().parent.mkdir(parents=True)
    provider.kind_kubeconfig().write_text("{}")
    assert not provider.chosen({"E2E_PROVIDER": "kind"}).ours_alone


COLLECTED = [
    f"e2e/suites/{file}.py" for file in ("api/test_kube_client", "harness/test_cluster", "installed/test_installed")
]


def collected(**environment: str) -> str:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", *COLLECTED]
    answer = subprocess.run(
        collect, cwd=ROOT, env={"PATH": os.defpath, **environment}, capture_output=True, text=True, check=True
    )
    return answer.stdout


def test_on_an_existing_cluster_only_marked_tests_run(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")

    found = collected(E2E_PROVIDER="existing", E2E_KUBECONFIG=str(kubeconfig), E2E_CONTEXT="c")

    assert "test_kube_client.py::" in found
    assert "test_installed.py::" in found
    assert "test_cluster.py::" not in found
    assert "deselected" in found


def test_what_needs_an_installation_does_not_run_where_there_is_none() -> None:
    found = collected()
    assert "test_kube_client.py::" in found
    assert "test_installed.py::" not in found
