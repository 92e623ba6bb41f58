"""The files of `deploy/manifests` and `deploy/optional` that the chart is the source of.

python -m e2e.deploy.chart.rendered      write them (`make manifests`)
"""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.deploy.chart.helm import Helm, built
from tests.support.repository import ROOT

MANIFESTS: Final = ROOT / "deploy" / "manifests"
OPTIONAL: Final = ROOT / "deploy" / "optional"
HEAD: Final = "# Rendered from deploy/chart by `make manifests`: change it there.\n\n"
# As a patch of kustomize: the whole specification takes the place of the installed one's, with what that has beside it.
_SPEC: Final = "\nspec:\n"
_IN_ITS_PLACE: Final = f"{_SPEC}  $patch: replace\n"
# Labels that are true of what helm installs alone.
OF_HELM: Final = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_OF_HELM: Final = re.compile(rf"^ *(?:{'|'.join(map(re.escape, OF_HELM))}): .*\n", re.MULTILINE)
_MPS: Final = {"devicePlugin": {"config": {"isolation": "mps"}}}


def _policy(name: str) -> dict[str, Any]:
    return {"admissionPolicies": {name: {"enabled": True}}}


# By file of `deploy/optional`: the values that add it.
OF_VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "default-scheduler-name.yaml": {"defaultSchedulerName": {"enabled": True}},
    "device-plugin-evict.yaml": {"devicePlugin": {"mayEvict": True}},
    "device-plugin-mark-assigned.yaml": {"devicePlugin": {"mayMarkAssigned": True}},
    "limit-volume-writes.yaml": _policy("volumes"),
    "mps/device-plugin-configmap.yaml": _MPS,
    "mps/device-plugin-daemonset.yaml": _MPS,
    "openshift-scc.yaml": {"openShift": {"enabled": True}},
    "network-policies.yaml": {"networkPolicy": {"enabled": True}},
    "page.yaml": {"page": {"enabled": True}},
    "pod-monitors.yaml": {"podMonitor": {"enabled": True}},
    "refuse-unknown-keys.yaml": _policy("unknownKeys"),
    "refuse-visible-devices.yaml": _policy("visibleDevices"),
    "service-monitors.yaml": {"serviceMonitor": {"enabled": True}},
}


def files(helm: Helm) -> dict[Path, str]:
    """Every file, and what it has to hold. Raises HelmRefused."""
    installed = {MANIFESTS / name: text for name, text in helm.rendered({}).items()}
    optional = {OPTIONAL / name: helm.rendered(values)[Path(name).name] for name, values in OF_VALUES.items()}
    patches = [path for path in optional if MANIFESTS / path.name in installed]
    optional |= {path: optional[path].replace(_SPEC, _IN_ITS_PLACE, 1) for path in patches}
    return {path: HEAD + _OF_HELM.sub("", text) for path, text in (installed | optional).items()}


def main() -> None:
    """Write every one."""
    with tempfile.TemporaryDirectory() as home:
        for path, text in files(built(Path(home))).items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
