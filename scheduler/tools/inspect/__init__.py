"""Tables of `kubectl inspect gpushare`, computed from nodes and pods, and their exact text. Pure."""
