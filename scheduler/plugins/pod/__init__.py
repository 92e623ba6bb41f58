"""Rules about other pods, and about the pod itself: affinity, spread, gates, queue order."""
