"""`kubectl gpushare` and `kubectl inspect gpushare`, which run with their user's rights."""
