"""`gpushare-scheduler check-config FILE` accepts what `run` accepts, and says of the rest what `run` says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from typer.testing import CliRunner, Result

from scheduler.program import cli

HEAD: Final = "apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n"


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    """Undo what `run` configures: lines would go to an output that is closed by then."""
    yield
    structlog.reset_defaults()


def invoked(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment)


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        pytest.param(HEAD, {}, id="the defaults"),
        pytest.param(f"{HEAD}memoryUnitMiB: 1", {}, id="the smallest unit"),
        pytest.param(f"{HEAD}profiles: [{{schedulerName: a}}, {{schedulerName: b}}]", {}, id="two profiles"),
        pytest.param(f"{HEAD}memoryUnitMiB: 0\nnew: 1", {}, id="two mistakes"),
        pytest.param(f"{HEAD}profiles: [{{schedulerName: a}}, {{schedulerName: a}}]", {}, id="a name twice"),
        pytest.param(f"{HEAD}profiles: [{{pluginConfig: [{{name: None, args: {{}}}}]}}]", {}, id="no such plugin"),
        pytest.param("kind: SchedulerConfiguration", {}, id="half a head"),
        pytest.param("a: [", {}, id="not YAML"),
        pytest.param(HEAD, {"GPUSHARE_SCHEDULER_LOGLEVEL": "loud"}, id="a mistake in the environment"),
    ],
)
def test_a_file_is_valid_where_run_accepts_it(tmp_path: Path, text: str, environment: dict[str, str]) -> None:
    file, nowhere = tmp_path / "scheduler.yaml", str(tmp_path / "nowhere")
    file.write_text(text, encoding="utf-8")

    checked = invoked("check-config", str(file), **environment)
    ran = invoked("run", "--config", str(file), "--kubeconfig", nowhere, **environment)

    accepted = f"{nowhere}, named by --kubeconfig, does not exist" in ran.stderr
    assert (checked.exit_code == 0) is accepted
    assert checked.stdout == (f"{file} is valid: gpushare-scheduler run accepts it\n" if accepted else "")
    assert checked.stderr == ("" if accepted else ran.stderr)
