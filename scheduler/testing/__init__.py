"""Parts for tests: a cluster in memory, and histories that try rules. No scheduling code imports it."""
