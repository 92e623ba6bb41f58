"""Rules about nodes: their labels, taints, resources, ports and images."""
