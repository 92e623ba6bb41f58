"""The tests on real servers, and what several of them share."""
