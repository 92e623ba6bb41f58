"""The scheduler as a client of an API server: start, credentials, requests, versions."""
