"""What the handlers of watch events report, for tests."""

from scheduler.intake.reports import ProblemReports
from scheduler.kube.problem import Problem
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.process.clock import Clock

# Every pod was created after the start.
STANDING = Clock(float, int)


class Reported(ProblemReports):
    """Reports that are kept."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.seen: list[ClaimKey | str] = []

    def problem(self, problem: Problem) -> None:
        self.problems.append(problem)

    def volume_seen(self, key: ClaimKey | str) -> None:
        self.seen.append(key)
