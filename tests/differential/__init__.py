"""The differential test: our engine beside the real kube-scheduler, on the same objects.

    groups/       scenarios, one module per group, made from a seed
    record        runs them through the oracle (e2e/servers/oracle), and writes what it says to recorded/
    compare       gives the recorded objects to our engine, and tells where it says something else

`make test` compares; only recording takes Go. What is compared how is in docs/evidence/kube-scheduler.md,
what differs on purpose in docs/differences.md.
"""
