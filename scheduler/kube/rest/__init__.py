"""A real API server behind `port.Cluster`: the only package that speaks HTTP to one, for both programs.

`client_config` finds the server and its credentials and keeps them valid, `transport` sends, `failures` maps errors,
`watching` reads, `writing` builds request bodies, `reviews` checks permissions; `client` combines them.
Decides nothing about pods, and repeats a request only after a 401.
"""
