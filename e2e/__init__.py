"""Real Kubernetes servers to test and measure on, and the tests that need them.

`provider` says which cluster a run gets: by default `cluster`, an etcd and a kube-apiserver of our
own on loopback ports, built from Go modules by `binaries`. Nothing here reads `KUBECONFIG` or
`~/.kube/config`; another cluster is touched only when it is named by `E2E_PROVIDER=existing`.

`node` adds real nodes to it, each a kubelet and containerd of our own, where the tests run as root
on cgroup v1; tests that need one are skipped elsewhere, and fail with CI set.

What has to be on PATH: Go (the version in `servers/*/go.mod`) and `openssl`; for nodes also `gcc`,
`pkg-config`, `nsenter`, `apt-get` and `dpkg`.
"""
