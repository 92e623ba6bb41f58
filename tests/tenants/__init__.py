"""What one namespace's user can do to the others: 55 attacks on the whole scheduler, on a cluster in memory.

Latencies are in the time of the processor that the scheduler alone uses (`tests.support.clocks.working_time`),
as it is where the limits were set (`tests.support.clocks.machine_speed`).
"""
