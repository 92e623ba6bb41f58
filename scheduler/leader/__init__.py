"""Decides which replica schedules, and how far the new leader has caught up with the previous one."""
