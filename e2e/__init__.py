"""Real Kubernetes servers and a real node to test and measure on, and the tests that need them.

    control_plane/  etcd and the Kubernetes servers: built, started, ended; which cluster a run gets; the tests' client
    node/           a real node on this machine: kubelet, containerd, runc, their images and pods; with NVIDIA's
                    container toolkit too, where cards and driver are stand-ins
    local_cluster/  `make cluster`: all of these together, until Ctrl-C
    kind/           `make kind`: a cluster in Docker with the image and simulated cards, no Python
    programs/       our scheduler and our device plugin as processes, and `deploy/manifests` applied
    deploy/         what is deployed, tried with the tools that operators use: `make test-deploy`
    suites/         the tests, a folder for each subject
    support/        helpers that several suites share
    lanes.py        which tests stay in one worker
    bench/          the measurements of docs/evidence/benchmarks.md, and tests of what judges and prints them
    servers/        the Go modules that pin the servers, and these tools, no Python

By hand: `python -m e2e.control_plane.cluster up` starts a control plane until Ctrl-C, `make cluster` one with nodes.

By default a run gets a control plane of its own on loopback ports. Nothing here reads `KUBECONFIG` or
`~/.kube/config`; another cluster is touched only when it is named by `E2E_PROVIDER=existing`, or is that of
`make kind`. Tests on a node need root on cgroup v1; they are skipped elsewhere, and fail with CI set.

What has to be on PATH: Go (the version in `servers/*/go.mod`) and `openssl`; for nodes also `gcc`, `pkg-config`,
`nsenter`, `apt-get` and `dpkg`; for those with NVIDIA's toolkit also `ldd` and `ldconfig`.
"""
