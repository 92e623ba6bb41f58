"""Log lines about the features that the programs use and that a Kubernetes version lacks. Pure.

Source of every `since`: pkg/features/kube_features.go of kubernetes and of apiserver, 1.29 to 1.37, which list for each
gate the minor versions in which it is on by default. Manually switched gates are not detected.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# Longest text that is parsed as a version.
_LONGEST: Final = 64
_MINOR: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})")


class Minor(NamedTuple):
    """A minor version, such as 1.36."""

    major: int
    minor: int

    def __str__(self) -> str:
        """The version as operators write it."""
        return f"{self.major}.{self.minor}"


# Pinned in e2e/servers; docs/compatibility.md lists the tested combinations.
OLDEST_RUN: Final = Minor(1, 34)
NEWEST_RUN: Final = Minor(1, 37)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that is on by default from `since`. without: what is different in earlier versions.

    also: older minor versions in which it was on by default before it was switched off again.
    """

    name: str
    since: Minor
    without: str
    also: frozenset[Minor] = frozenset()

    def on(self, minor: Minor) -> bool:
        """Whether it is on by default."""
        return minor >= self.since or minor in self.also


_POLICIES: Final = Feature(
    "ValidatingAdmissionPolicy",
    Minor(1, 30),
    "only RBAC protects the annotations of pods and nodes: remove the policies from kustomization.yaml",
)
OF_THE_SCHEDULER: Final = (
    Feature("WatchList", Minor(1, 34), "lists come in pages of 500 objects", also=frozenset({Minor(1, 32)})),
    _POLICIES,
    Feature(
        "MatchLabelKeysInPodAffinity",
        Minor(1, 31),
        "the API server drops matchLabelKeys and mismatchLabelKeys of pod affinity: such a term matches more pods",
    ),
    Feature(
        "PodLevelResources",
        Minor(1, 34),
        "the API server drops spec.resources of a pod: only what its containers request counts",
    ),
)
OF_THE_DEVICE_PLUGIN: Final = (_POLICIES,)
OF_THE_KUBELET: Final = (
    Feature(
        "KubeletPodResourcesGet",
        Minor(1, 34),
        "containers get no cards: enable this feature gate of the kubelet (available from 1.27)",
    ),
)


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """Version reported by an API server. emulated: older version that it emulates, "" for none."""

    version: str
    emulated: str = ""


class VersionNotice(NamedTuple):
    """A log line. level: `info` or `warning`."""

    level: str
    event: str
    fields: Mapping[str, str]


def of_server(announced: ServerVersion, features: Sequence[Feature]) -> list[VersionNotice]:
    """Notices about an API server's version for a program that uses these features."""
    return _lines("kube-apiserver", announced.version, announced.emulated or announced.version, features)


def of_kubelet(version: str) -> list[VersionNotice]:
    """Notices of the device plugin about a kubelet's version, `nodeInfo.kubeletVersion`."""
    return _lines("kubelet", version[:_LONGEST], version[:_LONGEST], OF_THE_KUBELET)


def off(version: str, features: Sequence[Feature]) -> list[Feature]:
    """Features that are off by default in that version; none if it cannot be read."""
    minor = minor_of(version)
    return [] if minor is None else [feature for feature in features if not feature.on(minor)]


def unknown(program: str, reason: str) -> VersionNotice:
    """Notice about an unreadable version."""
    return VersionNotice("warning", "kubernetes.version_unknown", {"program": program, "reason": reason})


def minor_of(version: str) -> Minor | None:
    """Minor version of `v1.36.3`, `v1.31.5-gke.1023000` or `1.29+`; None for any other text."""
    found = _MINOR.match(version)
    return Minor(int(found.group(1)), int(found.group(2))) if found else None


def _lines(program: str, version: str, behaves_as: str, features: Sequence[Feature]) -> list[VersionNotice]:
    minor = minor_of(behaves_as)
    if minor is None:
        return [unknown(program, f"{behaves_as!r} is not a version")]
    said = {"program": program, "version": version}
    if behaves_as != version:
        said["emulated"] = behaves_as
    lines = [VersionNotice("info", "kubernetes.version", said)]
    if not OLDEST_RUN <= minor <= NEWEST_RUN:
        than = "older" if minor < OLDEST_RUN else "newer"
        hint = f"{than} than the tested versions, {OLDEST_RUN} to {NEWEST_RUN}: see docs/compatibility.md"
        lines.append(VersionNotice("warning", "kubernetes.version_not_run", said | {"hint": hint}))
    without = off(behaves_as, features)
    lines += [VersionNotice("warning", "kubernetes.feature_off", said | _described(feature)) for feature in without]
    return lines


def _described(feature: Feature) -> dict[str, str]:
    return {"feature": feature.name, "since": str(feature.since), "without": feature.without}
