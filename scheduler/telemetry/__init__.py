"""Reports what happens: log lines and metrics, Events and conditions.

Told by the service; decides nothing, and nothing waits for it.
"""
