"""Features for users of gpushare-scheduler-extender only; removed after their migration."""
