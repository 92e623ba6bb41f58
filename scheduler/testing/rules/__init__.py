"""Tests of rules, for their authors: `scheduler.testing.rules.check.check_rule` tests one with random histories.

Needs hypothesis, the optional extra `testing`.
"""
