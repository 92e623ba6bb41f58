"""Columns over rows: their growth, the assignment of rows, and columns of labels, taints and resources."""
