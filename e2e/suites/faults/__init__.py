"""Faults: servers and processes that end, tenants that attack, chaos, long runs."""
