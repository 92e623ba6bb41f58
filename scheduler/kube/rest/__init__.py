"""A real API server behind `port.Cluster`: the only package that speaks HTTP to one, for both programs.

`client_config` finds it and its credentials and keeps those valid, `transport` sends, `failures`
names what can go wrong, `watching` reads, `writing` builds what is sent, `rights` checks what we may do; `client` puts
them together.
Decides nothing about pods and repeats nothing but a request that was answered 401.
"""
