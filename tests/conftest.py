"""Fixtures that every test below this directory may ask for."""

pytest_plugins = ["tests.controlplane.fixtures"]
