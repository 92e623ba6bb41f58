"""Facts that `kubectl gpushare doctor` reads, and its findings. Pure."""
