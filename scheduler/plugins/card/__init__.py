"""Rules about GPU cards: memory, compute, sharers, models, placement policies."""
