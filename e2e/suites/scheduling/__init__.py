"""Scheduling decisions on a real API server, and kube-scheduler's beside them."""
