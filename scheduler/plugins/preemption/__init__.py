"""Preemption: which pods to evict, on which node."""
