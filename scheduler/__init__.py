"""The scheduler: watches pods and nodes, decides node and cards for each pod, binds it in one request.

`framework`, `plugins`, `state`, `queue`, `scheduling_cycle` and `diagnosis` decide and do nothing else: they never
wait, log, draw a random number or read a clock. `kube` alone speaks to an API server, `app` alone puts concrete
parts together. Shares `config` with the device plugin and never imports it.
"""
