"""Cards that nodes announce, the pods' allocations, and the columns of both."""
