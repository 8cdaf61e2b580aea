"""Foreign JSON in, model values out, status patches back: one file for each API, none of them aware of another.

`core` reads what Kubernetes itself defines; `registry` lists the dialects of groups and queues. A new API is a new file
and a line in `registry`; a new way for a pod to name its group is a line in `membership`.
"""
