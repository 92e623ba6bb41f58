"""Turns what the watches of the API server bring into calls of the core."""
