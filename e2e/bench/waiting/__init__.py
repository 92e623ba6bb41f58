"""The cost of many waiting pods: the engine alone, and the service on a cluster in memory."""
