"""Parts shared by the commands: flags, clusters, manifests, exit codes, colors."""
