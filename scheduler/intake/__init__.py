"""Turns watch events from the API server into calls to the core."""
