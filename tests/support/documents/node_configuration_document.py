"""docs/configuration-node.md and the generated part of docs/isolation.md, out of the models."""

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

`gpushare-device-plugin run` needs to know its node, as a rule from the variable `NODE_NAME`; everything else has a
default. To change a default, use a file (`--config FILE`), the environment, or a flag. **A flag wins
over the environment, the environment over the file, the file over the defaults.** A mistake in any of them ends the
program with exit code 2 before it does anything; it prints every mistake at once, one a line, with its source, its path
and what is allowed there. `gpushare-device-plugin check-config FILE` tells the same before you apply a file; it looks
at no node and no cluster.

## The file

YAML, one document, the same for all nodes. An unknown field is a mistake, and so is a key that is there twice; a key
without a value counts as left out.

```yaml
{EXAMPLE}```

What keeps containers to their share is in [isolation](isolation.md).

## The environment

`GPUSHARE_DEVICE_PLUGIN_` and the path in upper case, its parts joined by two underscores; items of a list by their
number, from 0. A section or a list as a whole is given as YAML. A variable with this prefix that names no field is a
mistake, except for the addresses that Kubernetes puts there when a Service has such a name.

| variable | sets |
|---|---|
| `NODE_NAME=node-1` | `nodeName`, where `GPUSHARE_DEVICE_PLUGIN_NODENAME` does not |
| `GPUSHARE_DEVICE_PLUGIN_RECONCILEINTERVAL=2m` | `reconcileInterval` |
| `GPUSHARE_DEVICE_PLUGIN_RESOURCES__GPUMEM=example.com/gpu-mem` | `resources.gpuMem` |
| `GPUSHARE_DEVICE_PLUGIN_CDISPECDIRS=[/etc/cdi]` | `cdiSpecDirs` |

A duration is written as Kubernetes does, `500ms`, `4s`, `1m30s`, or as a number of seconds.

## The flags

`gpushare-device-plugin run --help` lists them. `--memory-unit` is `GiB`, `MiB`, or a multiple such as `128MiB`,
and sets `memoryUnitMiB`.

Command lines of the legacy device plugin keep working: without `run`, with one dash or two, with `=` or without.
`--memory-unit` and `--health-check` work as before, except that the health check is on unless switched off. Its other
flags have no effect here and are ignored with one warning: `--mps`, `--mps-pipe`, `--query-kubelet`,
`--kubelet-address`, `--kubelet-port`, `--client-cert`, `--client-key`, `--token`, `--timeout`, and those of its log,
such as `-logtostderr` and `--v`.
"""


def node_markdown() -> str:
    """The whole of docs/configuration-node.md."""
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
    """The generated part of docs/isolation.md: the placeholders, and every field of a description."""
    rows = "\n".join(f"| `{{{name}}}` | {meaning} |" for name, meaning in PLACEHOLDERS.items())
    parts = [
        f"## Placeholders\n\n| placeholder | of a container |\n|---|---|\n{rows}\n",
        section("## Fields", IsolationMechanism),
        section("### `mounts[]`", IsolationMount),
        section("### `hooks[]`", IsolationHook),
    ]
    return "\n".join(parts)
