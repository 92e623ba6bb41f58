"""NVIDIA's libraries without a driver: stand-ins in C, and the world that they report."""
