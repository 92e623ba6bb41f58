"""Columns over rows: their growth, the assignment of rows to nodes, and columns of labels, taints and resources."""
