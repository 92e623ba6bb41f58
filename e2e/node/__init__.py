"""A node on this machine: kubelet, containerd and runc, with its images and pods."""
