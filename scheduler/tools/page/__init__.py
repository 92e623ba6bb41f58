"""Web page: its data, and the files for browsers. It only reads the cluster."""
