"""Metrics and `status` of the plugin.

Shows what it is given: it asks neither the driver, nor the kubelet, nor the API server.
"""
