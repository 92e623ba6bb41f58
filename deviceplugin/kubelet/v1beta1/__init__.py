"""The kubelet's two gRPC interfaces: messages generated from the protos beside them (`make protos`)."""
