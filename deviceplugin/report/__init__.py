"""What the plugin shows of itself: metrics and `status`.

Shows what it is given: it asks neither the driver, nor the kubelet, nor the API server.
"""
