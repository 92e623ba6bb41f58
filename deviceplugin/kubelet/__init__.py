"""The kubelet: its sockets and messages, its checkpoint, and the fake devices that it counts.

Knows neither the driver nor the API server.
"""
