"""Tests of rules, for their authors: `scheduler.testing.rules.check.check_rule` runs one through random histories.

Needs hypothesis, the optional extra `testing`.
"""
