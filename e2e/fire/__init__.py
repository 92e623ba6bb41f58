"""Faults that really happen, done to the scheduler's process on real servers, and a witness of what comes of it.

The witness (`reading`, `witness`, `pending`, `recording`) shares no code with the scheduler, `config.protocol`
included: it reads what etcd stores, by docs/develop/protocol.md. The faults (`proxy`, `mishaps`, `server_faults`,
`neighbours`) are pieces that run alone or together, each from a generator of one seed; `site` sets them up.
See docs/evidence/reliability.md.
"""
