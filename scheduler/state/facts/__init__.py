"""Facts: counts of pods per node or card for the rules, and the table that keeps them up to date."""
