"""Lets the assertions of the suite tell what they saw: pytest by itself rewrites only the files that it collects."""

import pytest

pytest.register_assert_rewrite(
    "tests.contract.binding_contract",
    "tests.contract.event_contract",
    "tests.contract.following",
    "tests.contract.lease_contract",
    "tests.contract.status_contract",
    "tests.contract.under_test",
    "tests.contract.volume_contract",
    "tests.contract.watch_contract",
)
