"""Test suites on real servers, by subject."""
