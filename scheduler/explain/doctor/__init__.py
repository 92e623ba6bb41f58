"""What `kubectl gpushare doctor` looks at, and how it judges. Pure."""
