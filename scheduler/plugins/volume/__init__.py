"""Rules about volumes and claims."""
