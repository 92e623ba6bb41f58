"""Leader election, and waiting until a new leader's tables include all that the previous leader knew."""
