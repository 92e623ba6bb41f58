"""Claims, persistent volumes and what else of storage decides where a pod may run; who has taken which volume."""
