"""Errors of the container runtime at the last starts of a pod's containers, as the kubelet reports them. Pure.

The kubelet's report is in the pod's status: as the state of a container that waits for its next attempt, or as the last
state of a container that was tried before.
"""

import re
from typing import Final

import msgspec

from scheduler.kube import objects

_LONGEST: Final = 300
# States of a container whose program has not run: only the kubelet and the runtime write their messages. A program may
# write the message of any other end. Sources: Kubernetes, pkg/kubelet/kuberuntime; containerd, internal/cri/server.
_NOT_STARTED: Final = frozenset({"RunContainerError", "CreateContainerError", "StartError"})
# Matched from the beginning: further on, runtimes quote names that a pod's author chose. runc names the stage, crun the
# program. Sources: runc, libcontainer/configs/config.go (Hooks.Run); crun, src/libcrun/container.c (do_hooks).
_OF_LIMITS: Final = re.compile(
    r"(?:(?:failed to create containerd task|failed to create shim task|OCI runtime create failed|runc create failed|"
    r"unable to start container process|error during container init|container create failed): )*"
    r"(?:error running createRuntime hook #\d+: |error executing hook `[^`]*/nvidia-cdi-hook` )"
)


class _Said(msgspec.Struct, frozen=True, gc=False):
    """A state. reason: one word."""

    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True, gc=False):
    waiting: _Said | None = None
    terminated: _Said | None = None


class WatchedContainer(objects.ContainerStatus, frozen=True):
    """Status of a container with the messages of its states."""

    state: _State | None = None
    last_state: _State | None = None

    def start_errors(self) -> list[str]:
        """Return why the container was not started, if its current or last state says so."""
        states = [state for state in (self.state, self.last_state) if state]
        ends = [said for state in states for said in (state.waiting, state.terminated) if said]
        return [said.message for said in ends if said.reason in _NOT_STARTED]


class WatchedPodStatus(objects.PodStatus, frozen=True):
    """Status of a pod of this node."""

    container_statuses: tuple[WatchedContainer, ...] = ()
    init_container_statuses: tuple[WatchedContainer, ...] = ()


class WatchedPod(objects.PodObject, frozen=True):
    """v1.Pod, with what the plugin reads of it in addition to the scheduler's fields."""

    API_KIND = objects.PodObject.API_KIND
    status: WatchedPodStatus = WatchedPodStatus()


def limit_hook_error(pod: objects.PodObject | None, container: str) -> str:
    """Return the message of a start at which the hook for memory limits failed; "" if there is none."""
    if not isinstance(pod, WatchedPod):
        return ""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    messages = [message for one in statuses if one.name == container for message in one.start_errors()]
    return next((message[-_LONGEST:] for message in messages if _OF_LIMITS.match(message)), "")
