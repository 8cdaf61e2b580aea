"""The binder: performs BindRequests, whole gangs, and never changes its mind about where a pod goes.

`machine` decides (pure), `loop` performs, `ports` says what the loop needs from outside.
"""
