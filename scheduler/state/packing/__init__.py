"""What pods usually ask, and how much of the free GPU memory they can use: what packing is measured against. Pure."""
