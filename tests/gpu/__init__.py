"""The driver and CUDA of a machine with a real card, without Kubernetes: `make test-gpu`."""
