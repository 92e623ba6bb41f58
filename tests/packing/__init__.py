"""The comparison of policies on a trace: e2e/packing."""
