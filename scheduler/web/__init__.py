"""What the scheduler serves over HTTP: probes and metrics. Reads the tables, never changes them."""
