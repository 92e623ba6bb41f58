"""Whatever stands in what the plugin has read, its status, its doctor and its errors show it as text alone."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from deviceplugin.cli import cli
from deviceplugin.doctor.checks import as_text as doctor_text
from deviceplugin.doctor.facts import Examination, Finding, Verdict
from deviceplugin.report.status import DevicePluginStatus
from deviceplugin.report.status import as_text as status_text
from scheduler.process.output import show_json, show_text
from tests.deviceplugin.report.test_status_page import STATUS
from tests.support.servers.hostile import HOSTILE, shows_only_text, spoiled, texts


def status() -> DevicePluginStatus:
    """The documents of a plugin, with the text at the end of each of its texts."""
    document = msgspec.json.decode(msgspec.json.encode(STATUS))
    for path in texts(document):
        document = spoiled(document, path)
    return msgspec.convert(document, DevicePluginStatus)


def test_the_status_is_text_alone_and_a_field_makes_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_text(status_text(status()))
    printed = capsys.readouterr().out
    assert shows_only_text(printed)
    assert printed.count("\n") == status_text(STATUS).count("\n")
    assert "[2J" in printed


def test_the_status_in_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    show_json(msgspec.json.encode(status()).decode())
    printed = capsys.readouterr().out
    assert shows_only_text(printed)
    assert json.loads(printed) == msgspec.json.decode(msgspec.json.encode(status()))


def test_the_doctor_says_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    show_text(doctor_text(Examination(HOSTILE, (Finding(HOSTILE, Verdict.FAILED, HOSTILE, HOSTILE),))))
    printed = capsys.readouterr().out
    assert shows_only_text(printed)
    assert len([line for line in printed.splitlines() if line]) == 5


@pytest.mark.parametrize(
    "command", [["status", "--address", HOSTILE], ["release", HOSTILE], ["fault", "--control", "x"]]
)
def test_errors_that_quote_what_was_typed_are_text_alone(tmp_path: Path, command: list[str]) -> None:
    ran = CliRunner(env={"GPUSHARE_DEVICE_PLUGIN_STATEDIR": str(tmp_path)}).invoke(cli, command)
    assert ran.exit_code == 1
    assert shows_only_text(ran.stdout + ran.stderr)


def test_a_configuration_with_hostile_text_is_refused_in_lines_of_text(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({HOSTILE: 1, "mode": HOSTILE, "nodeName": HOSTILE, "listen": HOSTILE}))
    ran = CliRunner().invoke(cli, ["run", "--config", str(file)], env={})
    assert ran.exit_code == 2
    assert shows_only_text(ran.stdout + ran.stderr)
    assert "[2J" in ran.stderr
