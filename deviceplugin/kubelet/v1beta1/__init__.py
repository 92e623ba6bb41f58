"""The kubelet's two gRPC interfaces: messages generated from the protos in this folder (`make protos`)."""
