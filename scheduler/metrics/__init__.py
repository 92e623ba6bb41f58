"""Log lines and metrics about the scheduler's work. Decides nothing, and nothing waits for it."""
