"""Address and credentials of the API server: from a kubeconfig, or the pod's service account."""
