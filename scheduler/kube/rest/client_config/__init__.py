"""Where the API server is and how to authenticate: a kubeconfig, or the pod's service account."""
