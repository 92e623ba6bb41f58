"""What `kubectl inspect gpushare` shows, worked out from nodes and pods, and its exact text. Pure."""
