"""Fixtures that every test below this directory may ask for, and what holds on every machine that runs them."""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane.fixtures"]

# A shell makes what it puts into the background deaf to Ctrl-C, which children inherit; tests press Ctrl-C on theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast a busy machine makes examples is no property of the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
