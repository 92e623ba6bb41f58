"""Cards that nodes announce, allocations of pods, and the columns of both."""
