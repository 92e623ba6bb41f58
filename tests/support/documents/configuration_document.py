"""Configuration models as Markdown: docs/configuration.md, and the tables of fields that other documents have. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import duration
from config.settings.leader_election import LeaderElectionSection
from config.settings.plugins import MAX_WEIGHT, POINTS, PluginDescription
from config.settings.scheduler import (
    ClientConnection,
    Resources,
    SchedulerConfiguration,
    SchedulerProfile,
)
from config.settings.schema import bounds, is_duration, is_model, name_in_file, options
from scheduler.plugins.node.node_affinity import AddedAffinity
from scheduler.plugins.pod.pod_topology_spread import DefaultConstraint

_RANGE: Final = re.compile(r"at least (\S+), at most (\S+)")

EXAMPLE: Final = """\
apiVersion: gpushare/v1alpha1
kind: SchedulerConfiguration
logLevel: info
podMaxBackoffSeconds: 30
profiles:
- schedulerName: gpushare-scheduler
  pluginConfig:
  - name: GpuShare
    args:
      cardPolicy: binpack
      nodePolicy: spread
- schedulerName: gpushare-training
  plugins:
    score:
      enabled:
      - name: NodeResourcesFit
        weight: 5
      disabled:
      - name: NodeAffinity
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
"""

# Kubernetes documents their fields.
_OF_PODS: Final = (AddedAffinity, DefaultConstraint)

_INTRODUCTION: Final = f"""\
# Configuration of the scheduler

<!-- Written by `make docs` from the models: change those, not this file. -->

For operators: every setting of the scheduler. All have defaults, so `gpushare-scheduler run` needs no configuration.
Change defaults in a file (`--config FILE`), in the environment, or with flags. Flags override the environment, and the
environment overrides the file.

If a setting is invalid, the program exits with code 2 at once, and prints all mistakes, one per line, each with its
source, path and allowed values. `gpushare-scheduler check-config FILE` checks a file without a cluster.

## The file

The file is one YAML document. Fields that also exist in `KubeSchedulerConfiguration` have the same names as there.
Unknown fields and duplicate keys are rejected. A key without a value is treated as omitted.

```yaml
{EXAMPLE}```

## The environment

A variable's name is `GPUSHARE_SCHEDULER_` plus the field's path in upper case, with `__` between its parts; list items
are numbered from 0. Write objects and lists as YAML. Variables with this prefix that do not match a field are rejected,
except for those that Kubernetes sets for a Service of this name.

| variable | sets |
|---|---|
| `GPUSHARE_SCHEDULER_BINDTIMEOUT=2s` | `bindTimeout` |
| `GPUSHARE_SCHEDULER_RESOURCES__GPUMEM=example.com/gpu-mem` | `resources.gpuMem` |
| `GPUSHARE_SCHEDULER_PROFILES__0__SCHEDULERNAME=my-scheduler` | `profiles[0].schedulerName` |
| `GPUSHARE_SCHEDULER_CLIENTCONNECTION={{kubeconfig: /etc/gpushare/kubeconfig}}` | `clientConnection` |

Write durations as in Kubernetes (`500ms`, `4s`, `1m30s`) or as a number of seconds.
"""

_PLUGINS: Final = """\
## Plugins

`profiles[].plugins` selects plugins and sets the weights of their scores. At each point, `enabled` adds plugins and
`disabled` removes default ones. With `disabled: [{{name: "*"}}]`, only the plugins in `enabled` run, in that order.
`multiPoint` applies to every point; an entry for a single point overrides it. Filters run in order, and the message
comes from the first one that rejects the node. Weights are integers from 1 to {max_weight}.

{rows}

You cannot disable {indispensable} at `filter`, `PrioritySort`, or `DefaultBinder`.
PreFilter and Reserve belong to a plugin's Filter; PostBind does not exist. `GpuShare` applies `cardFilter` and
`cardScore` to the cards of a node. Plugins from other packages are off until a profile enables them.

The [plugin reference](../scheduler/plugins/README.md) describes each plugin; [write a rule](develop/write-a-rule.md)
shows how to add one.

## Arguments of plugins

Each entry of `profiles[].pluginConfig[]` has a plugin's `name` and its `args`. The following plugins have arguments:
"""

_ABSENT: Final = """\
## Fields of KubeSchedulerConfiguration that are rejected

They would have no effect: `parallelism` and `percentageOfNodesToScore` (all nodes are evaluated at once), `extenders`,
`clientConnection.qps` and `.burst` (`maxBindsInFlight` limits the load), `enableProfiling`, `delayCacheUntilActive` (a
standby is always up to date).
"""


def configuration_markdown(described: Sequence[PluginDescription]) -> str:
    """Return the whole of docs/configuration.md. described: the existing plugins."""
    parts = [
        _INTRODUCTION,
        section("## Fields", SchedulerConfiguration),
        section("### `resources`", Resources),
        section("### `clientConnection`", ClientConnection),
        section("### `leaderElection`", LeaderElectionSection),
        section("## Profiles: `profiles[]`", SchedulerProfile),
        _plugins(described),
        *(text for plugin in described if plugin.args for text in sections(f"### {plugin.name}", plugin.args)),
        _ABSENT,
    ]
    return "\n".join(parts)


def sections(heading: str, model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield `section` of the model, and of each model inside it, under its path."""
    yield section(heading, model)
    for name, field in model.model_fields.items():
        is_list = get_origin(field.annotation) is tuple
        inside = get_args(field.annotation)[0] if is_list else field.annotation
        if is_model(inside) and inside not in _OF_PODS:
            inner = f"{path}{name_in_file(name, field)}{'[]' if is_list else ''}"
            yield from sections(f"`{inner}`:", inside, f"{inner}.")


def section(heading: str, model: type[BaseModel]) -> str:
    """Return a heading, the model's description, and a table of its fields."""
    contract = " ".join((model.__doc__ or "").split())
    lines = [f"{heading}\n\n{contract}\n\n| field | type | default | meaning |\n|---|---|---|---|"]
    for name, field in model.model_fields.items():
        cells = (f"`{name_in_file(name, field)}`", _type(field), _default(field), field.description or "")
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _plugins(described: Sequence[PluginDescription]) -> str:
    off = ", ".join(f"`{plugin.name}`" for plugin in described if not plugin.on_by_default)
    rows = [
        f"{f'All but {off}' if off else 'All plugins'} are in the default profile.",
        "",
        "| plugin | points | default weight |",
        "|---|---|---|",
    ]
    for plugin in described:
        points = ", ".join(f"`{point.name}`" for point in POINTS if point.name in plugin.points)
        rows.append(f"| {plugin.name} | {points} | {plugin.weight or ''} |".replace("  ", " "))
    indispensable = " and ".join(f"`{p.name}`" for p in described if p.indispensable and "filter" in p.points)
    return _PLUGINS.format(max_weight=MAX_WEIGHT, rows="\n".join(rows), indispensable=indispensable)


def _type(field: FieldInfo) -> str:
    words = " or ".join(_words(option) for option in options(field.annotation))
    words = "duration" if is_duration(field) else words
    return ", ".join(filter(None, (words, _RANGE.sub(r"\1 to \2", bounds(field)))))


def _words(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        items = {_words(option) for option in options(get_args(annotation)[0])}
        return f"list of {items.pop()}s" if len(items) == 1 else "list"
    if get_origin(annotation) is dict:
        return "map of strings"
    if is_model(annotation):
        return "object"
    names: dict[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return names[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.default
    if isinstance(value, BaseModel):
        return "" if isinstance(value, _OF_PODS) else "see below"
    if is_duration(field):
        return f"`{duration.text(value)}`"
    return _value(value)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"`{value:g}`"
    if isinstance(value, SchedulerProfile):
        return "one profile"
    if isinstance(value, BaseModel):
        return "`" + ": ".join(str(part) for part in value.model_dump().values()) + "`"
    if isinstance(value, tuple):
        return ", ".join(_value(item) for item in value)
    return f"`{value}`" if isinstance(value, str) and value else ""
