"""A hook that failed is told from the runtime's message, and never from what a pod's author can write."""

import msgspec
import pytest

from deviceplugin.allocation.start_errors import WatchedPod, limit_hook_error
from scheduler.kube import objects

RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error running createRuntime hook #0: exit status 1, stdout: , stderr: "
)
LIMITS = "failed to set memory limits for gpu"
CRUN = "container create failed: error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: 1)\n"


def pod(**status: object) -> WatchedPod:
    whole = {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "c0", **status}]}}
    return msgspec.json.decode(msgspec.json.encode(whole), type=WatchedPod)


def ended(reason: str, message: str) -> dict[str, object]:
    return {"terminated": {"reason": reason, "message": message, "exitCode": 128}}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"state": {"waiting": {"reason": "RunContainerError", "message": RUNC + LIMITS}}}, id="at once"),
        pytest.param({"state": ended("StartError", RUNC + LIMITS)}, id="until it is tried again"),
        pytest.param(
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended("StartError", RUNC + LIMITS)},
            id="while it waits",
        ),
        pytest.param({"state": {"waiting": {"reason": "CreateContainerError", "message": CRUN}}}, id="crun"),
    ],
)
def test_a_hook_that_failed_is_found(status: dict[str, object]) -> None:
    assert limit_hook_error(pod(**status), "c0") in {(RUNC + LIMITS)[-300:], CRUN}
    assert limit_hook_error(pod(**status), "c1") == ""


NAMED = 'failed to create containerd task: exec: "/v/error running createRuntime hook #0: ": no such file or directory'
USER = "unable to find user error running createRuntime hook #0: : no matching entries in passwd file"
OTHER = RUNC.replace("createRuntime", "createContainer")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        pytest.param("Error", RUNC + LIMITS, id="the program's own last message"),
        pytest.param("Completed", RUNC + LIMITS, id="and without an error"),
        pytest.param("StartError", NAMED, id="a program with such a name"),
        pytest.param("StartError", USER, id="a user with such a name"),
        pytest.param("StartError", OTHER, id="another hook"),
        pytest.param("OOMKilled", "", id="no message"),
    ],
)
def test_nothing_that_a_pods_author_writes_looks_like_it(reason: str, message: str) -> None:
    assert limit_hook_error(pod(lastState=ended(reason, message)), "c0") == ""


def test_a_pod_without_states_has_no_error() -> None:
    assert limit_hook_error(pod(), "c0") == ""
    assert limit_hook_error(None, "c0") == ""
    assert limit_hook_error(objects.PodObject(objects.ObjectMeta("p")), "c0") == ""
