"""What exists for users of gpushare-scheduler-extender alone, and goes when they have moved."""
