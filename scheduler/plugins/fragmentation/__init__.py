"""The policy `fragmentation` of GpuShare: usual requests, and how much of the free GPU memory they can use. Pure."""
