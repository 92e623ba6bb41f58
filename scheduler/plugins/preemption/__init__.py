"""Preemption: the pods to evict, and the node on which to evict them."""
