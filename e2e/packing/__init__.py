"""How well policies pack: a real trace through `simulate`, beside published policies (docs/evidence/packing.md)."""
