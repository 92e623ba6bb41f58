"""What is not as it was decided: compared in a slow loop, told, and where configured evicted.

Reads everybody, changes nothing but by an eviction.
"""
