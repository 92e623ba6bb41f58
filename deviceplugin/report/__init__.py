"""Metrics and `status` of the plugin.

Shows the facts that it receives: it queries neither the driver, nor the kubelet, nor the API server.
"""
