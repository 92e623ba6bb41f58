"""Features only for users of gpushare-scheduler-extender; to be removed after their migration."""
