"""docs/configuration-node.md and the generated part of docs/isolation-mechanism.md, from the models."""

from typing import Final

from config.settings.deviceplugin import DevicePluginConfiguration, HamiCore, Kubelet, Mps
from config.settings.isolation import PLACEHOLDERS, IsolationHook, IsolationMechanism, IsolationMount
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

For operators: every setting of the device plugin. `gpushare-device-plugin run` needs only the name of its node, usually
from the variable `NODE_NAME`. Change defaults in a file (`--config FILE`), in the environment, or with flags. Flags
override the environment, and the environment overrides the file.

If the configuration is invalid, the program prints all mistakes and exits with code 2. To check a file before you apply
it, run `gpushare-device-plugin check-config FILE`.

## The file

The file is one YAML document, the same for all nodes. Unknown fields and duplicate keys are invalid.

```yaml
{EXAMPLE}```

## The environment

A variable's name is `GPUSHARE_DEVICE_PLUGIN_` plus the field's path in upper case, with `__` between its parts; its
value is YAML. Variables with this prefix that do not match a field are invalid.

| variable | sets |
|---|---|
| `NODE_NAME=node-1` | `nodeName`, unless `GPUSHARE_DEVICE_PLUGIN_NODENAME` does |
| `GPUSHARE_DEVICE_PLUGIN_RECONCILEINTERVAL=2m` | `reconcileInterval` |
| `GPUSHARE_DEVICE_PLUGIN_RESOURCES__GPUMEM=example.com/gpu-mem` | `resources.gpuMem` |
| `GPUSHARE_DEVICE_PLUGIN_CDISPECDIRS=[/etc/cdi]` | `cdiSpecDirs` |

Write durations as in Kubernetes (`500ms`, `4s`, `1m30s`), or as a number of seconds.

## The flags

`gpushare-device-plugin run --help` lists the flags. `--memory-unit` sets `memoryUnitMiB`; its value is `GiB`, `MiB`, or
a multiple such as `128MiB`.

Command lines of the legacy device plugin keep working. `--memory-unit` and `--health-check` work as before, except that
the health check is on by default. The other legacy flags have no effect and cause one warning.
"""

_SAME: Final = """\
[`resources`](configuration.md#resources) and [`clientConnection`](configuration.md#clientconnection) have the same
fields as in the scheduler's configuration.
"""


def node_markdown() -> str:
    """Return the whole of docs/configuration-node.md."""
    parts = [
        _INTRODUCTION,
        section("## Fields", DevicePluginConfiguration),
        _SAME,
        section("### `kubelet`", Kubelet),
        section("### `mps`", Mps),
        section("### `hamiCore`", HamiCore),
    ]
    return "\n".join(parts)


def isolation_markdown() -> str:
    """Return the generated part of docs/isolation-mechanism.md: the placeholders, and every field of a description."""
    rows = "\n".join(f"| `{{{name}}}` | {meaning} |" for name, meaning in PLACEHOLDERS.items())
    parts = [
        f"## Placeholders\n\n| placeholder | value for a container |\n|---|---|\n{rows}\n",
        section("## Fields", IsolationMechanism),
        section("### `mounts[]`", IsolationMount),
        section("### `hooks[]`", IsolationHook),
    ]
    return "\n".join(parts)
