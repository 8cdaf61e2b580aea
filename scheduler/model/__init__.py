"""Values that every part of Muster shares: what the cluster is, what was decided, and why.

Nothing here knows Kubernetes JSON, the network or the solver; everything is frozen and compares by value.
"""
