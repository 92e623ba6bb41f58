"""What an uninstall says to people, and to the kubelet's probe. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from deviceplugin.uninstall.facts import Facts
from deviceplugin.uninstall.plan import Plan, Until


@dataclass(frozen=True, slots=True)
class Left:
    """What is left after a try. failed: what could not be removed, or looked at -> why."""

    facts: Facts
    plan: Plan
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing of the plugin's is left."""
        return not (self.failed or self.plan.remove or self.plan.last or self.plan.waits)

    @property
    def problem(self) -> str:
        """In one line; "" when the node is clean."""
        if holders := self.facts.holders.pods if any(one.until is Until.PODS for one in self.plan.waits) else ():
            return f"pods hold cards: {', '.join(holder.pod for holder in holders)}"
        waits = [f"{one.what} stays: {one.why}" for one in self.plan.waits]
        failed = [f"{what} is not removed: {why}" for what, why in self.failed.items()]
        return "; ".join((failed + waits)[:1]) if not self.clean else ""


def would_remove(facts: Facts, plan: Plan) -> str:
    """For a dry run; ends with a line break."""
    return _text([f"would remove {one}" for one in (*plan.remove, *plan.last)] + _stays(facts, plan, ()))


def removed(names: Iterable[object]) -> str:
    """One a line."""
    return _text([f"removed {one}" for one in names])


def left(found: Left) -> str:
    """What stays and why, and whether that is all; ends with a line break."""
    node, own = found.facts.node_name, _stays(found.facts, found.plan, found.failed.items())
    end = f"Node {node}: nothing of the device plugin is left." if found.clean else f"Node {node}: not all is gone."
    return _text([*own, end])


def _stays(facts: Facts, plan: Plan, failed: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"cannot remove {what}: {why}" for what, why in failed]
    lines += [f"{one.what} stays: {one.why}" for one in plan.stays]
    if facts.holders.pods:
        lines += ["Pods that hold cards:", *(f"  {one.pod}: {one.holds}" for one in facts.holders.pods)]
    return lines


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
