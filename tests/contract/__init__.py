"""The contract of `port.Cluster`: one suite for the cluster in memory and for a real API server.

Each `*_contract` holds a class of tests that a test file inherits under a name that begins with `Test`, beside a
fixture `under_test`: `test_memory.py` for the cluster in memory, `e2e/suites/api/test_contract.py` for a real one.
"""
