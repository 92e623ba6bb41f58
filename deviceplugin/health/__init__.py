"""The health of each card: the rules, the state of every card over time, and the monitor that polls the driver.

Knows neither the API server nor the kubelet. Rules and states are pure.
"""
