"""Tests of the cluster in memory: its store, its verbs, and each fault that it can be given."""
