"""Benchmarks on real API servers, ours beside kube-scheduler: `python -m e2e.bench --help`."""
