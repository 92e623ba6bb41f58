"""Tests of rules, for their authors: `scheduler.testkit.check.check_rule` runs one through random histories.

Needs hypothesis, the optional extra `testkit`. No part of the scheduler imports it.
"""
