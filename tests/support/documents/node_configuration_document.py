"""docs/configuration-node.md and the generated part of docs/isolation-mechanism.md, from the models."""

from typing import Final

from config.settings.deviceplugin import DevicePluginConfiguration, HamiCore, Kubelet, Mps
from config.settings.isolation import PLACEHOLDERS, IsolationHook, IsolationMechanism, IsolationMount
from config.settings.scheduler import ClientConnection, Resources
from tests.support.documents.configuration_document import section

EXAMPLE: Final = """\
apiVersion: gpushare/v1alpha1
kind: DevicePluginConfiguration
logLevel: info
mode: cdi
monitor: evict
monitorAllowanceMiB: 1024
evictUnregistered: true
reconcileInterval: 2m
"""

_INTRODUCTION: Final = f"""\
# Configuration of the device plugin

<!-- Written by `make docs` from the models: change those, not this file. -->

`gpushare-device-plugin run` needs the name of its node, usually from the variable `NODE_NAME`; everything else has a
default. To change a default, use a file (`--config FILE`), the environment, or a flag. A flag wins over the
environment, the environment over the file.

A mistake ends the program with exit code 2 before it does anything. It prints all mistakes, one per line, with source,
path and what is allowed. `gpushare-device-plugin check-config FILE` checks a file before you apply it, without a node
or a cluster.

## The file

One YAML document, the same for all nodes. Unknown fields and duplicate keys are mistakes. A key without a value counts
as omitted.

```yaml
{EXAMPLE}```

[Isolation](isolation.md) keeps containers within their share.

## The environment

A variable is named `GPUSHARE_DEVICE_PLUGIN_` and the path in upper case, joined by two underscores; list items by
number, from 0. Give a section or a list as YAML. A variable with this prefix that names no field is a mistake, except
for the addresses that Kubernetes sets for a Service of such a name.

| variable | sets |
|---|---|
| `NODE_NAME=node-1` | `nodeName`, unless `GPUSHARE_DEVICE_PLUGIN_NODENAME` does |
| `GPUSHARE_DEVICE_PLUGIN_RECONCILEINTERVAL=2m` | `reconcileInterval` |
| `GPUSHARE_DEVICE_PLUGIN_RESOURCES__GPUMEM=example.com/gpu-mem` | `resources.gpuMem` |
| `GPUSHARE_DEVICE_PLUGIN_CDISPECDIRS=[/etc/cdi]` | `cdiSpecDirs` |

Durations are written as in Kubernetes, `500ms`, `4s`, `1m30s`, or as a number of seconds.

## The flags

`gpushare-device-plugin run --help` lists them. `--memory-unit` is `GiB`, `MiB`, or a multiple such as `128MiB`,
and sets `memoryUnitMiB`.

Command lines of the legacy device plugin keep working: without `run`, with one dash or two, with or without `=`.
`--memory-unit` and `--health-check` work as before, except that the health check is on by default. Its other flags have
no effect and cause one warning: `--mps`, `--mps-pipe`, `--query-kubelet`,
`--kubelet-address`, `--kubelet-port`, `--client-cert`, `--client-key`, `--token`, `--timeout`, and those of its log,
such as `-logtostderr` and `--v`.
"""


def node_markdown() -> str:
    """Return the whole of docs/configuration-node.md."""
    parts = [
        _INTRODUCTION,
        section("## Fields", DevicePluginConfiguration),
        section("### `resources`", Resources),
        section("### `clientConnection`", ClientConnection),
        section("### `kubelet`", Kubelet),
        section("### `mps`", Mps),
        section("### `hamiCore`", HamiCore),
    ]
    return "\n".join(parts)


def isolation_markdown() -> str:
    """Return the generated part of docs/isolation-mechanism.md: the placeholders, and every field of a description."""
    rows = "\n".join(f"| `{{{name}}}` | {meaning} |" for name, meaning in PLACEHOLDERS.items())
    parts = [
        f"## Placeholders\n\n| placeholder | of a container |\n|---|---|\n{rows}\n",
        section("## Fields", IsolationMechanism),
        section("### `mounts[]`", IsolationMount),
        section("### `hooks[]`", IsolationHook),
    ]
    return "\n".join(parts)
