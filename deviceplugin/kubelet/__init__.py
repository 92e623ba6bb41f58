"""The kubelet: its sockets and messages, its checkpoint, the fake devices that it counts.

Knows neither cards nor the API server.
"""
