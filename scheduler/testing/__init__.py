"""Test support: a cluster in memory, and random histories that test rules. No scheduling code imports it."""
