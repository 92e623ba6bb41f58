"""Wire formats, read and written by both programs with the same code. Pure.

Knows no setting, no file and no Kubernetes client.
"""
