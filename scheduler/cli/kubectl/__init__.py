"""`kubectl gpushare`: commands for whoever runs a cluster. They read with the user's own rights, and write cordons."""
