"""The same expectations on the embedded and the real API server. Where they differ, the embedded one is wrong."""
