"""File, environment and flags: which wins, that every mistake of all three is named at once, and what YAML is plain."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.plainyaml import DocumentError, parse
from config.settings.scheduler import SchedulerConfiguration, configuration_model, resolve
from scheduler.plugins.registry import describe

MODEL = configuration_model(describe())
PREFIX = "GPUSHARE_SCHEDULER_"
HEAD = "apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n"


def _quoted(names: list[str]) -> list[str]:
    return [f"'{name}'" for name in names]


_FILTERS = _quoted([plugin.name for plugin in describe() if "filter" in plugin.points])
FILTERS = f"{', '.join(_FILTERS[:-1])} or {_FILTERS[-1]}"
WITH_ARGUMENTS = ", ".join(_quoted([plugin.name for plugin in describe() if plugin.args]))
EVERY_MISTAKE = f"""\
environment GPUSHARE_SCHEDULER_LOG_LEVEL: unknown field; did you mean GPUSHARE_SCHEDULER_LOGLEVEL?
file: profiles[0].schedulerName: expected a valid string, found 7; write it in quotes
file: profiles[0].plugins.filter.enabled[0].name: expected {FILTERS}, found 'NodeNmae'; did you mean NodeName?
file: profiles[0].pluginConfig[0].name: expected {WITH_ARGUMENTS}, found 'GpuShar'; did you mean GpuShare?
file: profiles[0].pluginConfig[1].args.cardPolicy: expected 'binpack', 'spread' or 'fragmentation', \
found 'spred'; did you mean spread?
file: profiles[0].pluginConfig[1].args.colour: unknown field; expected one of: cardPolicy, nodePolicy, \
requestsHalfLife
file: profiles[0].pluginConfig[2].name: is missing
environment GPUSHARE_SCHEDULER_RESOURCES__GPUMEM: resources.gpuMem: expected the name of an extended resource, \
domain/name, found 'mem'
file: podMaxBackoffSeconds: expected at least podInitialBackoffSeconds, which is 20, found 10
environment GPUSHARE_SCHEDULER_BINDTIMEOUT: bindTimeout: expected a duration such as 500ms, 4s or 1m30s, or a number \
of seconds, found '4y'
flag --log-level: logLevel: expected 'debug', 'info', 'warning' or 'error', found 'inof'; did you mean info?
file: perCardMetrics: expected a valid boolean, unable to interpret input, found 'perhaps'
file: bindTimout: unknown field; did you mean bindTimeout?
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.yaml"


def loaded(
    file: Path | None = None, text: str = "", *, env: Mapping[str, str] = {}, flags: Mapping[str, object] = {}
) -> SchedulerConfiguration:
    if file is not None:
        file.write_text(HEAD + text, encoding="utf-8")
    environ = {PREFIX + name: value for name, value in env.items()} | {"PATH": "/bin", "HOME": "/"}
    return load(MODEL, file=file, environ=environ, flags=flags, env_prefix=PREFIX)


def mistakes(
    file: Path | None = None, text: str = "", *, env: Mapping[str, str] = {}, flags: Mapping[str, object] = {}
) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(file, text, env=env, flags=flags)
    assert str(caught.value) == "\n".join(str(mistake) for mistake in caught.value.mistakes)
    return str(caught.value).replace(f"{file}: ", "file: ").splitlines()


def test_a_section_that_was_removed_says_what_to_do_now(file: Path) -> None:
    (message,) = mistakes(file, "page: {enabled: true}\n")
    assert message.startswith("file: page: has been removed: ")
    assert "run `kubectl gpushare page`" in message


def test_without_any_value_the_default_holds() -> None:
    assert loaded() == MODEL()


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(file: Path) -> None:
    assert loaded(file, "logLevel: error\n", flags={"logLevel": None}).log_level == "error"
    assert loaded(file, "logLevel: error\n", env={"LOGLEVEL": "warning"}).log_level == "warning"
    assert loaded(file, flags={"logLevel": "debug"}, env={"LOGLEVEL": "warning"}).log_level == "debug"


def test_a_flag_reaches_into_a_section(file: Path) -> None:
    read = loaded(file, "clientConnection: {context: a}\n", flags={"clientConnection.kubeconfig": "/k"})

    assert (read.client_connection.kubeconfig, read.client_connection.context) == ("/k", "a")


def test_sections_are_merged_field_by_field(file: Path) -> None:
    read = loaded(file, "resources: {gpuMem: a.b/mem, gpuCount: a.b/count}\n", env={"RESOURCES__GPUMEM": "c.d/mem"})

    assert (read.resources.gpu_mem, read.resources.gpu_count) == ("c.d/mem", "a.b/count")


def test_lists_are_merged_item_by_item(file: Path) -> None:
    text = "profiles:\n- schedulerName: a\n- schedulerName: b\n  pluginConfig: [{name: GpuShare}]\n"
    read = loaded(
        file, text, env={"PROFILES__1__SCHEDULERNAME": "c", "PROFILES__1__PLUGINCONFIG__0__ARGS__CARDPOLICY": "spread"}
    )
    first, second = resolve(read)

    assert (first.scheduler_names, second.scheduler_names) == (("a",), ("c",))
    assert second.args["GpuShare"].card_policy == "spread"


def test_the_environment_may_add_items_to_a_list_in_their_order(file: Path) -> None:
    text = "profiles:\n- schedulerName: p0\n"
    more = {f"PROFILES__{number}__SCHEDULERNAME": f"p{number}" for number in range(11, 0, -1)}

    assert [p.scheduler_name for p in loaded(file, text, env=more).profiles] == [f"p{number}" for number in range(12)]


@pytest.mark.parametrize("name", ["MEMORYUNITMIB", "memoryUnitMiB", "MemoryUnitMib"])
def test_a_variable_names_its_field_in_any_case(name: str) -> None:
    assert loaded(env={name: "512"}).memory_unit_mib == 512


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("PERCARDMETRICS", "true", "per_card_metrics", True),
        ("PODMAXBACKOFFSECONDS", "30.5", "pod_max_backoff_seconds", 30.5),
        ("WATCHSTALLTIMEOUT", "2m", "watch_stall_timeout_s", 120.0),
        ("LISTEN", "[::1]:0", "listen", "[::1]:0"),
    ],
)
def test_the_text_of_a_variable_becomes_what_its_field_holds(
    name: str, text: str, attribute: str, value: object
) -> None:
    assert getattr(loaded(env={name: text}), attribute) == value


def test_a_section_or_list_in_the_environment_is_yaml(file: Path) -> None:
    read = loaded(
        file, "profiles: [{schedulerName: a}]\n", env={"PROFILES": "[{schedulerName: b}, {schedulerName: c}]"}
    )

    assert [profile.scheduler_name for profile in read.profiles] == ["b", "c"]


def test_a_field_may_follow_the_section_that_the_environment_gives() -> None:
    read = loaded(env={"CLIENTCONNECTION": "{kubeconfig: /a, context: x}", "CLIENTCONNECTION__CONTEXT": "y"})

    assert (read.client_connection.kubeconfig, read.client_connection.context) == ("/a", "y")


def test_a_key_without_a_value_is_left_out(file: Path) -> None:
    assert loaded(file, "clientConnection:\nlogLevel:\n") == MODEL()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SERVICE_HOST", "10.0.0.1"),
        ("SERVICE_PORT", "10261"),
        ("SERVICE_PORT_METRICS", "10261"),
        ("PORT", "tcp://10.0.0.1:10261"),
        ("PORT_10261_TCP", "tcp://10.0.0.1:10261"),
        ("PORT_10261_TCP_PROTO", "tcp"),
        ("METRICS_SERVICE_HOST", "10.0.0.1"),
        ("METRICS_PORT_10261_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_the_addresses_of_a_service_of_our_name_are_not_a_mistake(name: str, value: str) -> None:
    assert loaded(env={name: value}) == MODEL()


def test_every_mistake_of_every_source_is_named_at_once(file: Path) -> None:
    text = """\
bindTimout: 4s
podInitialBackoffSeconds: 20
perCardMetrics: perhaps
profiles:
- schedulerName: 7
  plugins: {filter: {enabled: [{name: NodeNmae}]}, bind: {disabled: [{name: "*"}]}}
  pluginConfig:
  - name: GpuShar
  - name: GpuShare
    args: {cardPolicy: spred, colour: red}
  - args: {}
"""
    found = mistakes(
        file,
        text,
        flags={"logLevel": "inof"},
        env={"BINDTIMEOUT": "4y", "LOG_LEVEL": "info", "RESOURCES__GPUMEM": "mem"},
    )

    assert found == EVERY_MISTAKE.splitlines()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("", "kind: is missing; expected SchedulerConfiguration", id="empty"),
        pytest.param(
            "kind: SchedulerConfiguration\n", "apiVersion: is missing; expected gpushare/v1alpha1", id="version"
        ),
        pytest.param("apiVersion: v1\nkind: Pod\n", "kind: expected 'SchedulerConfiguration', found 'Pod'", id="a pod"),
        pytest.param(
            "apiVersion: v1\nkind: Pod\n", "apiVersion: expected 'gpushare/v1alpha1', found 'v1'", id="its version"
        ),
        pytest.param("- a\n", "expected a mapping with apiVersion and kind, found list", id="a list"),
        pytest.param(HEAD + "---\n" + HEAD, "expected one document, found 2", id="two documents"),
        pytest.param(HEAD + "profiles: [\n", "line 4: ", id="no YAML"),
        pytest.param(HEAD + "x: \0", "is not YAML: unacceptable character #x0000: control characters", id="one line"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused_with_what_it_is(file: Path, text: str, complaint: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load(MODEL, file=file, environ={}, flags={}, env_prefix=PREFIX)

    assert any(str(mistake).startswith(f"{file}: {complaint}") for mistake in caught.value.mistakes)
    assert all("\n" not in str(mistake) for mistake in caught.value.mistakes)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for file, complaint in ((tmp_path / "absent", "No such file"), (tmp_path, "Is a directory"), (binary, "UTF-8")):
        with pytest.raises(ConfigurationError, match=complaint):
            load(MODEL, file=file, environ={}, flags={}, env_prefix=PREFIX)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("BINDTIMOUT", "4s", "unknown field; did you mean GPUSHARE_SCHEDULER_BINDTIMEOUT?"),
        ("", "x", "unknown field"),
        ("RESOURCES__", "x", "unknown field"),
        ("LOGLEVEL__0", "x", "unknown field"),
        ("PROFILES__FIRST__SCHEDULERNAME", "x", "unknown field"),
        ("PORT", "10261", "unknown field"),
        ("PROFILES__2__SCHEDULERNAME", "x", "index 2 leaves a gap: the list has 0 items; expected at most 0"),
        ("PROFILES__99999__SCHEDULERNAME", "x", "unknown field"),
        ("RESOURCES", "[", "resources: line 2: "),
        ("RESOURCES", "x", "resources: expected a valid dictionary or instance of Resources, found 'x'"),
        ("MAXBINDSINFLIGHT", "0", "maxBindsInFlight: expected at least 1, at most 1024, found '0'"),
    ],
)
def test_a_variable_that_means_nothing_is_a_mistake(name: str, value: str, complaint: str) -> None:
    (found,) = mistakes(env={name: value})

    assert found.startswith(f"environment GPUSHARE_SCHEDULER_{name}: ")
    assert complaint in found


def test_a_value_in_the_place_of_a_section_is_blamed_on_the_file(file: Path) -> None:
    (found,) = mistakes(file, "resources: 5\n", env={"RESOURCES__GPUMEM": "a.b/c"})

    assert found.startswith("file: resources: expected a valid dictionary")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            "clientConnection: {kubeconfig: {token: planted}}", "found a mapping", id="a user of a kubeconfig"
        ),
        pytest.param("clientConnection: [{token: planted}]", "found a list", id="in a list"),
        pytest.param("bindTimeout: {token: planted}", "found a mapping", id="instead of a duration"),
    ],
)
def test_what_stands_in_a_mapping_or_a_list_is_not_quoted(file: Path, text: str, complaint: str) -> None:
    (found,) = mistakes(file, text)

    assert complaint in found
    assert "planted" not in found


def test_a_long_value_is_cut_short_in_a_mistake(file: Path) -> None:
    (found,) = mistakes(file, f"logLevel: {'x' * 5000}\n")

    assert len(found) < 300


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"LEADERELECTION__LEASEDURATION": "5s"}, "leaderElection: expected leaseDuration > renewDeadline"),
        (
            {"LEADERELECTION__LEASEDURATION": "14s", "LEADERELECTION__RENEWDEADLINE": "11s"},
            "bindTimeout: expected less",
        ),
    ],
)
def test_what_goes_wrong_together_names_the_variables_that_were_set(env: Mapping[str, str], place: str) -> None:
    (found,) = mistakes(env=env)
    named = ", ".join(f"environment {PREFIX}{name}" for name in env)
    assert found.startswith(f"{named}: {place}")


def test_of_many_variables_three_are_named() -> None:
    names = ("LEADERELECTION__LEASEDURATION", "LEADERELECTION__RENEWDEADLINE")
    others = {"PODMAXBACKOFFSECONDS": "30", "LOGLEVEL": "debug"}
    (found,) = mistakes(env=others | dict(zip(names, ("14s", "11s"), strict=True)))
    assert " and 1 more: bindTimeout: " in found


def test_of_ten_thousand_unknown_variables_the_first_are_named_and_the_rest_counted() -> None:
    began_s = time.process_time()
    found = mistakes(env={f"VARIABLE{number}": "1" for number in range(10_000)})

    assert time.process_time() - began_s < 5  # each of them compared with all names: 73 s
    assert [line.partition(": ")[2].partition(";")[0] for line in found] == [
        *["unknown field"] * 10,
        "9990 more unknown fields",
    ]
    assert found[-1].startswith(f"environment {PREFIX}…: ")


def test_of_ten_thousand_mistakes_in_a_file_the_first_are_told_and_the_rest_counted(file: Path) -> None:
    found = mistakes(file, "".join(f"field{number}: 1\n" for number in range(10_000)))

    assert (len(found), found[0].startswith("file: field0: unknown field")) == (51, True)
    assert found[-1] == "file: 9950 more mistakes"


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("---\n# a remark\n---\na: 1\n", [{"a": 1}], id="documents with nothing in them"),
        pytest.param("a: 1\n---\n[1, x, 2.5, true]\n", [{"a": 1}, [1, "x", 2.5, True]], id="two documents"),
        pytest.param("a:\nb: {c: , d: 1}\ne:\n- f:\n\n", [{"b": {"d": 1}, "e": [{}]}], id="keys with nothing behind"),
        pytest.param("at: 2026-01-31T00:00:00Z\n", [{"at": "2026-01-31T00:00:00Z"}], id="a date"),
        pytest.param("a: &x {n: 1}\nb: *x\n", [{"a": {"n": 1}, "b": {"n": 1}}], id="an alias"),
        pytest.param(
            "a: &x {n: 1, m: 2}\nb: {<<: *x, n: 3}\n", [{"a": {"n": 1, "m": 2}, "b": {"n": 3, "m": 2}}], id="<<"
        ),
        pytest.param('{"a": {"b": [1]}}', [{"a": {"b": [1]}}], id="JSON"),
    ],
)
def test_documents_are_plain_values(text: str, documents: list[object]) -> None:
    assert parse(text) == documents


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", "line 3: key a appears twice in the mapping", id="a key twice"),
        pytest.param(
            "x:\n  a: 1\n  a: 1\n", "line 3: key a appears twice in the mapping", id="a key twice, further in"
        ),
        pytest.param("1: a\n", "line 1: key 1 is not a string", id="a number as a key"),
        pytest.param("on: a\n", "line 1: key True is not a string", id="a flag as a key"),
        pytest.param("? [a]\n: b\n", "line 1: key", id="a list as a key"),
        pytest.param("a: [1\n", "line 2: ", id="an open bracket"),
        pytest.param("\ta: 1\n", "line 1: ", id="a tab"),
        pytest.param("a: !!python/object:os.system x\n", "line 1: ", id="a Python object"),
        pytest.param("&a [*a]", "expands to more than", id="a list in itself"),
        pytest.param("a: \x00", "is not YAML", id="a control character"),
        pytest.param("[" * 100_000, "more than 200 levels of nesting", id="depth"),
        pytest.param(
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "expands to more than",
            id="anchors of anchors",
        ),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        parse(text)
