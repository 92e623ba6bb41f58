"""`kubectl gpushare` and `kubectl inspect gpushare`, with the rights of their user."""
