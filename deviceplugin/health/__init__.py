"""How each card is: the rules, the state of every card over time, and the monitor that keeps asking the driver.

Knows neither the API server nor the kubelet. Rules and states are pure.
"""
