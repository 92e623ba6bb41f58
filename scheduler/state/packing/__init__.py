"""Usual requests, and how much of the free GPU memory they can use: the measure of packing. Pure."""
