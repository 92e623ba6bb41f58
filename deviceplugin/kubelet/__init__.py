"""The kubelet: its sockets and messages, its checkpoint, the fake devices that it counts.

Knows neither the driver nor the API server.
"""
