"""The scheduler: watches pods and nodes, decides node and cards for each pod, binds it in one request.

`pods`, `framework`, `plugins`, `state`, `queue`, `engine` and `scheduling_cycle` decide and do nothing else: they never
wait, log, draw a random number or read a clock. `kube.rest` alone speaks HTTP to an API server, except for `kubectl
inspect gpushare` (`cli.inspect`). `build` puts the engine together, `app` the process around it. Shares `config` with
the device plugin and never imports it.
"""
