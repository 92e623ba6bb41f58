"""How well policies pack: a real cluster's trace through `simulate`, beside published policies (docs/packing.md)."""
