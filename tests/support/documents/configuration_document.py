"""Configuration models as Markdown: docs/configuration.md, and the tables of fields that other documents have. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import duration
from config.settings.leader_election import LeaderElectionSection
from config.settings.page import PageSection
from config.settings.plugins import MAX_WEIGHT, POINTS, PluginDescription
from config.settings.scheduler import (
    ClientConnection,
    Resources,
    SchedulerConfiguration,
    SchedulerProfile,
)
from config.settings.schema import bounds, is_duration, is_model, name_in_file, options

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
- schedulerName: gpushare-training # another name, other preferences
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

_INTRODUCTION: Final = f"""\
# Configuration of the scheduler

<!-- Written by `make docs` from the models: change those, not this file. -->

Every setting has a default, so `gpushare-scheduler run` needs no configuration. To change a default, use a file
(`--config FILE`), the environment, or a flag. A flag wins over the environment, the environment over the file.

A mistake ends the program with exit code 2 before it does anything. It prints all mistakes, one per line, with source,
path and what is allowed. `gpushare-scheduler check-config FILE` checks a file before you apply it, without a cluster.

## The file

One YAML document. Names and nesting are those of `KubeSchedulerConfiguration` if it has the field. Unknown fields and
duplicate keys are mistakes. A key without a value counts as omitted.

```yaml
{EXAMPLE}```

## The environment

A variable is named `GPUSHARE_SCHEDULER_` and the path in upper case, joined by two underscores; list items by number,
from 0. Give a section or a list as YAML. A variable with this prefix that names no field is a mistake, except for the
addresses that Kubernetes sets for a Service of such a name.

| variable | sets |
|---|---|
| `GPUSHARE_SCHEDULER_BINDTIMEOUT=2s` | `bindTimeout` |
| `GPUSHARE_SCHEDULER_RESOURCES__GPUMEM=example.com/gpu-mem` | `resources.gpuMem` |
| `GPUSHARE_SCHEDULER_PROFILES__0__SCHEDULERNAME=my-scheduler` | `profiles[0].schedulerName` |
| `GPUSHARE_SCHEDULER_CLIENTCONNECTION={{kubeconfig: /etc/gpushare/kubeconfig}}` | `clientConnection` |

Durations are written as in Kubernetes, `500ms`, `4s`, `1m30s`, or as a number of seconds.
"""

_PLUGINS: Final = """\
## Plugins

`profiles[].plugins` selects plugins and the weights of their scores. At each point, `enabled` adds plugins and
`disabled` removes default ones. After `disabled: [{{name: "*"}}]` only the plugins in `enabled` run, in that order.
`multiPoint` applies to every point; a point's own section wins over it. Filters run in order, and the first that
rejects the node gives the message. A weight is a whole number from 1 to {max_weight}; without one, the default applies.

| plugin | points | in the default profile | default weight |
|---|---|---|---|
{rows}

You cannot disable {indispensable} at `filter`: a pod would be bound regardless of what they check. Nor can you disable
`PrioritySort` and `DefaultBinder`, the only ones of their kind. PreFilter and Reserve belong to a plugin's Filter;
PostBind does not exist. `GpuShare` applies `cardFilter`, `cardScore` and `cardSet` to the cards of a node. The
[plugin reference](../scheduler/plugins/README.md) describes each plugin; [write a rule](develop/write-a-rule.md) shows
how to add one. Plugins of other packages are off until a profile enables them.

## Arguments of plugins

`profiles[].pluginConfig[]` holds a plugin's `name` and its `args`. These plugins have arguments.
"""

_ABSENT: Final = """\
## What KubeSchedulerConfiguration has and this has not

These would have no effect, so naming one is a mistake: `parallelism` and `percentageOfNodesToScore` (all nodes are
evaluated at once), `extenders`, `clientConnection.qps` and `.burst` (`maxBindsInFlight` limits the load),
`enableProfiling`, `delayCacheUntilActive` (a standby always has current tables).
"""


def configuration_markdown(described: Sequence[PluginDescription]) -> str:
    """Return the whole of docs/configuration.md. described: the existing plugins."""
    parts = [
        _INTRODUCTION,
        section("## Fields", SchedulerConfiguration),
        section("### `resources`", Resources),
        section("### `clientConnection`", ClientConnection),
        section("### `leaderElection`", LeaderElectionSection),
        section("### `page`", PageSection),
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
        if is_model(inside):
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
    rows = []
    for plugin in described:
        points = ", ".join(f"`{point.name}`" for point in POINTS if point.name in plugin.points)
        rows.append(f"| {plugin.name} | {points} | {'yes' if plugin.on_by_default else 'no'} | {plugin.weight or ''} |")
    indispensable = " and ".join(f"`{p.name}`" for p in described if p.indispensable and "filter" in p.points)
    return _PLUGINS.format(max_weight=MAX_WEIGHT, rows="\n".join(rows).replace("  ", " "), indispensable=indispensable)


def _type(field: FieldInfo) -> str:
    words = " or ".join(_words(option) for option in options(field.annotation))
    words = "duration" if is_duration(field) else words
    return ", ".join(filter(None, (words, bounds(field))))


def _words(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        items = {_words(option) for option in options(get_args(annotation)[0])}
        return f"list of {items.pop()}" if len(items) == 1 else "list"
    if get_origin(annotation) is dict:
        return "mapping of text"
    if is_model(annotation):
        return "section"
    names: dict[object, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.default
    if isinstance(value, BaseModel):
        return "see below"
    if is_duration(field):
        return f"`{duration.text(value)}`"
    return _value(value)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"`{value:g}`"
    if isinstance(value, SchedulerProfile):
        return "one profile, see below"
    if isinstance(value, BaseModel):
        return "`" + ": ".join(str(part) for part in value.model_dump().values()) + "`"
    if isinstance(value, tuple):
        return ", ".join(_value(item) for item in value)
    return f"`{value}`" if isinstance(value, str) and value else ""
