"""Turns watch events of the API server into calls of the core."""
