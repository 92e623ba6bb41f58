"""The report for the author of a failing rule."""

from scheduler.framework.plugin import Plugin
from scheduler.pods.pod import Pod
from scheduler.testing.rules.history import Failure, FailureKind
from scheduler.testing.rules.profiles import Company


class RuleBroken(AssertionError):
    """A rule's answer differs from a fresh evaluation; the message has the rule's name, a hint, and the history."""


def message(rule: type[Plugin], failure: Failure, company: Company, cause: str, seed: int) -> str:
    """The whole text."""
    lines = [f"{rule.name}: {cause}", "", f"The smallest history found, with {rule.name} {company}:"]
    lines += [f"{number:>3}. {sentence}" for number, sentence in enumerate(failure.log, start=1)]
    lines += ["", *_outcome(failure), "", f"seed={seed} finds this history again."]
    return "\n".join(lines)


def _outcome(failure: Failure) -> list[str]:
    about = "" if failure.pod is None else described(failure.pod)
    match failure.kind:
        case FailureKind.ANSWER:
            return [
                f"Then, for {about}:",
                f"  the scheduler says:      {failure.kept}",
                f"  from scratch it is:      {failure.fresh}",
            ]
        case FailureKind.WAITING:
            return [f"Then {about} still waits, and nobody wakes it, although it {failure.fresh}"]
        case FailureKind.TABLES:
            return [
                "Then the tables are not what the pods hold: a fault of gpushare-scheduler itself, please report it."
            ]
        case FailureKind.RESTLESS:
            return ["Then the engine wakes pods and finds no place for them, again and again."]
        case FailureKind.RAISED:
            return [f"Then it raises {type(failure.error).__name__}: {failure.error}"]


def described(pod: Pod) -> str:
    """`pod p1 (label app=web, owner o1)`."""
    said = [f"label {key}={value!r}" for key, value in pod.labels.items()]
    said += [f"annotation {key}={value!r}" for key, value in pod.annotations.items()]
    said += [f"owner {pod.owner_uid}"] if pod.owner_uid else []
    said += [f"namespace {pod.key.namespace}"] if pod.key.namespace != "default" else []
    said.append(f"{pod.template.gpu_units} units")
    name = "a pod" if pod.key.name == "probe" else f"pod {pod.key.name}"
    return f"{name} ({', '.join(said)})"
