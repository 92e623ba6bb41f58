"""What `deploy/` holds, with the tools that operators use: run by `make test-deploy`, and left out of `make e2e`."""
