"""Names and meaning of metrics, declared once for registries, scrapes and docs/metrics.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Label:
    """Label of a metric. bound: limit on the number of its values."""

    name: str
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric. name: as scraped. says: the help text, one or two sentences.

    of_leader: only the active replica reports it, because it describes the cluster. alike: "the same" if
    kube-scheduler's metric of the same name means the same, otherwise the difference; "" if it has none. in_unit: the
    unit if the name does not end in it.
    """

    name: str
    kind: Kind
    says: str
    labels: tuple[Label, ...] = ()
    of_leader: bool = False
    alike: str = ""
    in_unit: str = ""

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    def counter(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.says, self.label_names, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.says, self.label_names, registry=registry)

    def histogram(self, registry: CollectorRegistry, buckets: Sequence[float]) -> Histogram:
        """Create and register a histogram. buckets: upper bounds, without infinity."""
        return Histogram(self.name, self.says, self.label_names, buckets=buckets, registry=registry)

    def gauges(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.says, labels=self.label_names)

    def counters(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.says, labels=self.label_names)

    def head(self) -> bytes:
        """Return its `# HELP` and `# TYPE` lines in the text of a scrape."""
        return f"# HELP {self.name} {self.says}\n# TYPE {self.name} {self.kind}\n".encode()


BUILD: Final = Series(
    name="gpushare_build_info",
    kind="gauge",
    says="Build of gpushare-scheduler.",
    labels=(Label("version", "1"), Label("commit", "1"), Label("python", "1")),
)
"""Shared by both programs; `build_info` shows it."""


def new_registry() -> CollectorRegistry:
    """Create a registry without `_created` series, which are unused and would double all counters and histograms."""
    disable_created_metrics()  # type: ignore[no-untyped-call] # the library says no types of it
    return CollectorRegistry()


def declared(module: ModuleType) -> tuple[Series, ...]:
    """Return every metric that the module declares, in order."""
    return tuple(one for one in vars(module).values() if isinstance(one, Series))
