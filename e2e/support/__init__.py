"""Helpers that several suites share: sites with nodes and pods, programs as users run them, histories."""
