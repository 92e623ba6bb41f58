"""Back-off after failed attempts."""


def backoff_s(attempts: int, *, initial_s: float, max_s: float) -> float:
    """Seconds to wait after `attempts` failed attempts: doubles each time, up to `max_s`.

    attempts: >= 0; without a failed attempt there is no wait. Source: kube-scheduler, backend/queue/backoff_queue.go,
    calculateBackoffDuration.
    """
    if attempts == 0:
        return 0.0
    # 2 ** 64 seconds exceeds every max_s; a larger exponent would only take longer to compute.
    return min(max_s, initial_s * 2.0 ** min(attempts - 1, 64))
