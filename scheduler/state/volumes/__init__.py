"""Claims, persistent volumes and other storage objects that restrict a pod's nodes; and volumes assumed for pods."""
