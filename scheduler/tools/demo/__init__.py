"""`demo`: a cluster in memory and the scheduler, drawn in the terminal."""
