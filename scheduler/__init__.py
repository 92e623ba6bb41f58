"""The scheduler: watches pods and nodes, chooses node and cards for each pod, and binds it in one request.

`core`, `plugins`, `framework`, `queue`, `state` and `pods` only make decisions: they never wait, log, draw a random
number or read a clock. Only `kube.rest` speaks HTTP to an API server, except for `kubectl inspect gpushare`
(`tools.kubectl.inspect`). `core.build` builds the engine, `app` the process around it. The scheduler shares `config`
with the device plugin and never imports it.
"""
