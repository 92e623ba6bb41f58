"""A real API server behind `port.Cluster`: the only package that speaks HTTP to one.

`connect` says where it is and who we are, `credentials` keeps that valid, `transport` sends, `failures` names what can
go wrong, `watching` reads, `writing` builds what is sent, `rights` asks what we may do; `client` puts them together.
Decides nothing about pods and repeats nothing but a request that was answered 401.
"""
