"""`kubectl gpushare` and `kubectl inspect gpushare`, with the rights of the user who runs them."""
