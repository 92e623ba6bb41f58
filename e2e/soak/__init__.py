"""Pods, nodes and namespaces that come and go for a long time, and whether the scheduler's process stays as it is.

No name is used twice, so whatever is kept by name, uid, owner or template grows if nothing forgets it. `things` are the
manifests, `lives` what becomes of each, `load` how many come; `seen` watches what the scheduler does with them,
`measured` what its processes take meanwhile, and `judged` says what of that must not be.
See docs/evidence/reliability.md, "Soak".
"""
