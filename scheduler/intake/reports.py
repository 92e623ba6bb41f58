"""Port: what the handlers of watch events report besides changing tables and queue."""

from typing import Protocol

from scheduler.kube.problem import Problem
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey


class Reports(Protocol):
    """Receiver of what the watches show."""

    def problem(self, problem: Problem) -> None:
        """Report an invalid object."""

    def waiting_seen(self, pod: Pod) -> None:
        """Take note of a waiting pod of ours that was created or has changed."""

    def volume_seen(self, key: ClaimKey | str) -> None:
        """Take note of a claim, or of a volume by name, that was created, changed or deleted."""


class ProblemReports(Reports):
    """Reports of invalid objects only. A subclass defines `problem`."""

    def waiting_seen(self, pod: Pod) -> None:
        """Ignore the pod."""

    def volume_seen(self, key: ClaimKey | str) -> None:
        """Ignore the claim or volume."""
