"""Log lines and metrics of what the scheduler does. Decides nothing, and nothing waits for it."""
