"""Fixtures that every test below this directory may ask for, and what holds on every machine that runs them."""

import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane.fixtures"]

# A shell makes what it puts into the background deaf to Ctrl-C, which children inherit; tests press Ctrl-C on theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast a busy machine makes examples is no property of the code.
# A change lands on the same examples every time; `make test-all` looks for new ones (EXPLORE=1).
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="EXPLORE" not in os.environ
)
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """What a test lets structlog do ends with it: a level that it raised would hide what a later test looks for."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    structlog.reset_defaults()
    if configured:
        structlog.configure(**before)
