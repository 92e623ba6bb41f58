"""Tests that need no cluster; the directories mirror the packages that they test."""
