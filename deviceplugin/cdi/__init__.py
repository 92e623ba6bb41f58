"""CDI specs: what a container gets in addition to its image, and the files that the runtime reads.

Knows neither pods nor the kubelet.
"""
