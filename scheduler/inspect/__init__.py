"""What `kubectl inspect gpushare` shows, computed from nodes and pods, and its exact text. Pure."""
