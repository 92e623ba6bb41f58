"""What the plugin says of itself: probes, metrics and `status`.

Is told; asks nobody.
"""
