"""Helpers that several suites share: sites with nodes and pods, programs run as users run them, pod histories."""
