"""PrioritySort: the pod of the highest priority is next.

Source: kube-scheduler, plugins/queuesort/priority_sort.go.
"""

from scheduler.pods.pod import Pod


def sort_key(pod: Pod) -> int:
    """Smaller is earlier. Computed once, at enqueue; pods with the same key keep their order of arrival."""
    return -pod.priority
