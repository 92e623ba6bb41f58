"""Leader election, and how far the new leader's tables have caught up with those of the previous leader."""
