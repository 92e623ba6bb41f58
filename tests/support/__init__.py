"""Builders, doubles and models that the tests of several packages share."""
