"""Parts that the commands share: flags, clusters, manifests, exit statuses, colors."""
