"""The whole scheduler on a cluster in memory, in virtual time."""
