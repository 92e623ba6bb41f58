"""What an uninstall says to people, and to the kubelet's probe. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from deviceplugin.uninstall.facts import Installed
from deviceplugin.uninstall.plan import Plan, Removal, Until
from scheduler.process.terminal import one_line, printable


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left after a try. failed: what could not be removed, or looked at -> why."""

    facts: Installed
    plan: Plan
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing of the plugin's is left."""
        return not (self.failed or self.plan.remove or self.plan.last or self.plan.waits)

    @property
    def now(self) -> list[Removal]:
        """What can be removed by now, or has been made again."""
        return [one for one in (*self.plan.remove, *self.plan.last) if str(one) not in self.failed]

    @property
    def later(self) -> bool:
        """Whether another try may remove more; what fails alone is no reason for one."""
        return bool(self.plan.waits) or (bool(self.now) and not self.failed)

    @property
    def problem(self) -> str:
        """In one line; "" when the node is clean."""
        if any(one.until is Until.PODS for one in self.plan.waits):
            return self.facts.holders.told
        lines = [f"{what} is not removed: {why}" for what, why in self.failed.items()]
        lines += [f"{one.what} stays: {one.why}" for one in self.plan.waits]
        lines += [f"{one} is still there" for one in self.now]
        return "" if self.clean else one_line(lines[0])


def would_remove(facts: Installed, plan: Plan) -> str:
    """For a dry run; ends with a line break."""
    return printable([f"would remove {one}" for one in (*plan.remove, *plan.last)] + _stays(facts, plan, ()))


def removed(names: Iterable[object]) -> str:
    """One a line."""
    return printable([f"removed {one}" for one in names])


def left(found: Remaining) -> str:
    """What stays and why, and whether that is all; ends with a line break."""
    node, own = found.facts.node_name, _stays(found.facts, found.plan, found.failed.items())
    own += [f"{one} is still there: run it again" for one in (() if found.failed else found.now)]
    end = f"Node {node}: nothing of the device plugin is left." if found.clean else f"Node {node}: not all is gone."
    return printable([*own, end])


def _stays(facts: Installed, plan: Plan, failed: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"cannot remove {what}: {why}" for what, why in failed]
    lines += [f"{one.what} stays: {one.why}" for one in plan.stays]
    if facts.holders.pods:
        lines += ["Pods that hold cards:", *(f"  {one.pod}: {one.holds}" for one in facts.holders.pods)]
    return lines
