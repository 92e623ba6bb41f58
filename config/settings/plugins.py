"""A profile's plugins at each extension point, and their arguments. Pure.

Names, nesting and merging are KubeSchedulerConfiguration's (`profiles[].plugins`, `profiles[].pluginConfig`). This
module does not know the plugins: callers describe them, in the order in which the default profile calls them.
PreFilter, Reserve and NormalizeScore are not separate points: they belong to a plugin's other points.
Source: pkg/scheduler/apis/config/v1/default_plugins.go (mergePluginSet) and framework/runtime/framework.go
(expandMultiPointPlugins) of Kubernetes 1.36.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar, Union, cast

from pydantic import Field, create_model, field_validator, model_validator

from config.settings.schema import Section

ALL: Final = "*"
MAX_WEIGHT: Final = 100

Weight: TypeAlias = Annotated[int, Field(ge=1, le=MAX_WEIGHT)]
NameT_co = TypeVar("NameT_co", bound=str, covariant=True)
OffT_co = TypeVar("OffT_co", bound=str, covariant=True)


class ExtensionPoint(NamedTuple):
    """An extension point that a profile can change. name: in a file; field: in `Plugins` and `ChosenPlugins`."""

    name: str
    field: str


POINTS: Final = (
    ExtensionPoint("preEnqueue", "pre_enqueue"),
    ExtensionPoint("queueSort", "queue_sort"),
    ExtensionPoint("filter", "filter"),
    ExtensionPoint("postFilter", "post_filter"),
    ExtensionPoint("score", "score"),
    ExtensionPoint("cardFilter", "card_filter"),
    ExtensionPoint("cardScore", "card_score"),
    ExtensionPoint("permit", "permit"),
    ExtensionPoint("preBind", "pre_bind"),
    ExtensionPoint("bind", "bind"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDescription:
    """Facts about a plugin that a configuration needs.

    points: names of `POINTS`. args: its arguments; None if it takes none. weight: default weight of its score, or 0.
    summary: one line.
    """

    name: str
    points: frozenset[str]
    args: type[Section] | None = None
    weight: int = 0
    on_by_default: bool = True
    indispensable: bool = False
    summary: str = ""


class PluginRef(Section, Generic[NameT_co]):
    """A plugin, by name."""

    name: NameT_co


class WeightedPluginRef(PluginRef[NameT_co], Generic[NameT_co]):
    """A plugin with the weight of its score; the default weight if unset."""

    weight: Weight | None = None


class PluginSet(Section, Generic[NameT_co, OffT_co]):
    """Plugins switched on and off at one extension point; `*` switches everything off that is not enabled here."""

    enabled: tuple[PluginRef[NameT_co], ...] = ()
    disabled: tuple[PluginRef[OffT_co], ...] = ()

    @field_validator("enabled", "disabled")
    @classmethod
    def _named_once(cls, refs: tuple[PluginRef[str], ...]) -> tuple[PluginRef[str], ...]:
        twice = [name for name, count in Counter(ref.name for ref in refs).items() if count > 1]
        if twice:
            raise ValueError(f"expected each plugin once, found more than once: {', '.join(twice)}")
        return refs


class WeightedPluginSet(PluginSet[NameT_co, OffT_co], Generic[NameT_co, OffT_co]):
    """A PluginSet at a point where weights count."""

    enabled: tuple[WeightedPluginRef[NameT_co], ...] = ()


class Plugins(Section):
    """Changes of a profile to the default plugins: `multiPoint` at every extension point, the others at theirs."""

    described: ClassVar[tuple[PluginDescription, ...]] = ()

    multi_point: WeightedPluginSet[str, str] = WeightedPluginSet()
    pre_enqueue: PluginSet[str, str] = PluginSet()
    queue_sort: PluginSet[str, str] = PluginSet()
    filter: PluginSet[str, str] = PluginSet()
    post_filter: PluginSet[str, str] = PluginSet()
    score: WeightedPluginSet[str, str] = WeightedPluginSet()
    card_filter: PluginSet[str, str] = PluginSet()
    card_score: PluginSet[str, str] = PluginSet()
    permit: PluginSet[str, str] = PluginSet()
    pre_bind: PluginSet[str, str] = PluginSet()
    bind: PluginSet[str, str] = PluginSet()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.described:
            return self
        chosen = choose(self, self.described)
        missing = [
            f"{point.name} {plugin.name}"
            for plugin in self.described
            for point in POINTS
            if plugin.indispensable and point.name in plugin.points & _MUST_HAVE and plugin.name not in chosen.at(point)
        ]
        if missing:
            raise ValueError(f"disables plugins that every profile needs: {', '.join(missing)}")
        return self


# At its other points, an indispensable plugin may be switched off: the pod's node is still correct.
_MUST_HAVE: Final = frozenset({"filter", "queueSort", "bind"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPlugins:
    """The plugins of a profile at each extension point, in the order in which they are called.

    weights: by plugin in `score`, 1 to 100.
    """

    pre_enqueue: tuple[str, ...]
    queue_sort: tuple[str, ...]
    filter: tuple[str, ...]
    score: tuple[str, ...]
    card_filter: tuple[str, ...]
    card_score: tuple[str, ...]
    permit: tuple[str, ...]
    post_filter: tuple[str, ...]
    pre_bind: tuple[str, ...]
    bind: tuple[str, ...]
    weights: Mapping[str, int]

    def at(self, point: ExtensionPoint) -> tuple[str, ...]:
        """Plugins at one point."""
        return cast("tuple[str, ...]", getattr(self, point.field))


def choose(plugins: Plugins, described: Sequence[PluginDescription]) -> ChosenPlugins:
    """Return the default plugins among `described`, with the changes of `plugins`."""
    multi = plugins.multi_point
    defaults = [plugin.name for plugin in described if plugin.on_by_default]
    names = _merged(defaults, [ref.name for ref in multi.enabled], {ref.name for ref in multi.disabled})
    at = {
        point.field: _expanded(
            names,
            [plugin.name for plugin in described if point.name in plugin.points],
            getattr(plugins, point.field),
        )
        for point in POINTS
    }
    weighted = (*multi.enabled, *plugins.score.enabled)  # settings of the point itself are applied last
    weights = {plugin.name: plugin.weight or 1 for plugin in described}
    weights |= {ref.name: ref.weight for ref in weighted if ref.weight is not None}
    return ChosenPlugins(**at, weights={name: weights[name] for name in at["score"]})


def plugins_model(described: Sequence[PluginDescription]) -> type[Plugins]:
    """Return a `Plugins` model that rejects unknown plugin names, and plugins at points that they lack."""
    fields: dict[str, Any] = {"multi_point": _set_model(WeightedPluginSet, [plugin.name for plugin in described])}
    for point in POINTS:
        names = [plugin.name for plugin in described if point.name in plugin.points]
        fields[point.field] = _set_model(WeightedPluginSet if point.field == "score" else PluginSet, names)
    model = create_model("Plugins", __base__=Plugins, **fields)
    model.described = tuple(described)
    return model


def plugin_config_type(described: Sequence[PluginDescription]) -> object:
    """Return the type of a `pluginConfig` entry: a plugin's name, and the arguments that this plugin takes."""
    entries = [
        create_model(
            f"{plugin.name}Config",
            __base__=PluginConfig,
            __doc__="An entry of `pluginConfig`.",
            name=(Literal[plugin.name], ...),  # type: ignore[arg-type] # a name known at run time only
            args=(plugin.args, plugin.args()),
        )
        for plugin in described
        if plugin.args is not None
    ]
    return Annotated[Union[tuple(entries)], Field(discriminator="name")]  # noqa: UP007 - made of a list


class PluginConfig(Section):
    """An entry of `pluginConfig` for any plugin. args: the plugin's own model, or input for it."""

    name: str
    args: Any = None


def _set_model(kind: type[Any], names: Sequence[str]) -> tuple[object, object]:
    """Return (type, default) of a field of Plugins."""
    if not names:
        return PluginSet[Literal["*"], Literal["*"]], PluginSet[Literal["*"], Literal["*"]]()
    model = kind[Literal[tuple(names)], Literal[(*names, ALL)]]
    return model, model()


def _merged(defaults: Sequence[str], enabled: Sequence[str], disabled: Collection[str]) -> list[str]:
    """Return the defaults without the disabled plugins, then the additionally enabled ones."""
    kept = [] if ALL in disabled else [name for name in defaults if name not in disabled]
    return [*kept, *(name for name in enabled if name not in kept)]


def _expanded(multi_point: Iterable[str], implementers: Collection[str], here: PluginSet[str, str]) -> tuple[str, ...]:
    """Return the plugins of a point in order: multiPoint's that the point lists too, multiPoint's others, its own."""
    disabled = {ref.name for ref in here.disabled}
    from_multi = [] if ALL in disabled else [n for n in multi_point if n in implementers and n not in disabled]
    specific = [ref.name for ref in here.enabled]
    repeated = [name for name in specific if name in from_multi]
    return (
        *repeated,
        *(name for name in from_multi if name not in repeated),
        *(name for name in specific if name not in repeated),
    )
