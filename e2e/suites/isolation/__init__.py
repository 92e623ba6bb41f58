"""Isolation of containers on nodes with stand-ins of hardware."""
