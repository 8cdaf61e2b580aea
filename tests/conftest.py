"""Fixtures that every test below this directory may ask for."""

import signal

pytest_plugins = ["tests.controlplane.fixtures"]

# A shell makes what it puts into the background deaf to Ctrl-C, which children inherit; tests press Ctrl-C on theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
