"""CDI specs: what a container gets besides its image, and the files that the runtime reads.

Knows neither pods nor the kubelet.
"""
