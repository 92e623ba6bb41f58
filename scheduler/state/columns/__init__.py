"""Columns over rows: how they grow, which row is whose, and those of labels, taints and resources."""
