"""PrioritySort: the pod with the highest priority is next.

Source: kube-scheduler, plugins/queuesort/priority_sort.go.
"""

from scheduler.pods.pod import Pod


def sort_key(pod: Pod) -> int:
    """Return the sort key; smaller is earlier.

    Computed once, at enqueue; pods with equal keys keep their order of arrival.
    """
    return -pod.priority
