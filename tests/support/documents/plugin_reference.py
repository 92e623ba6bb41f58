"""scheduler/plugins/README.md, from the docstrings and arguments of the plugins."""

import inspect
from collections.abc import Sequence
from typing import Final

from config.settings.plugins import MAX_WEIGHT, POINTS, PluginDescription
from scheduler.framework.plugin import Plugin
from scheduler.plugins.registry import PLUGINS, describe
from tests.support.documents.configuration_document import sections

_INTRODUCTION: Final = f"""\
# Plugin reference

<!-- Written by `make docs` from the docstrings of the plugins: change those, not this file. -->

One rule, one file, in the order in which the default profile asks them. A pod that fits nowhere reads why: each node is
counted under every reason of the first rule that is against it, as in
`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`

Reasons are kube-scheduler's where it has the rule. Which plugins a profile has, with which weights (1 to {MAX_WEIGHT})
and arguments, is [configuration](../../docs/configuration.md#plugins); how to add a rule, here or in a package of your
own, is [write a rule](../../docs/develop/write-a-rule.md).
"""


def plugins_markdown(plugins: Sequence[type[Plugin]] = PLUGINS) -> str:
    """Return the whole of scheduler/plugins/README.md."""
    described = {description.name: description for description in describe(plugins)}
    return "\n".join([_INTRODUCTION, *(_section(plugin, described[plugin.name]) for plugin in plugins)])


def _section(plugin: type[Plugin], described: PluginDescription) -> str:
    points = ", ".join(point.name for point in POINTS if point.name in described.points)
    weight = f", weight {described.weight}" if described.weight else ""
    default = "In the default profile" if described.on_by_default else "Not in the default profile"
    head = f"## {plugin.name}\n\nPoints: {points}{weight}. {default}.\n"
    text = [head, inspect.cleandoc(plugin.__doc__ or "") + "\n"]
    if described.args is None:
        return "\n".join([*text, "No arguments.\n"])
    return "\n".join([*text, *sections("Arguments:", described.args)])
