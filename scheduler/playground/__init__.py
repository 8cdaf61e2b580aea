"""Embedded control plane: in-memory API server, fake controllers and fake kubelet, for demo, tests and simulation."""

from scheduler.playground.api import ApiOptions
from scheduler.playground.faults import Fault, Faults
from scheduler.playground.jobs import JobController
from scheduler.playground.kubelet import FakeKubelet, NodeSpec
from scheduler.playground.replicas import DeploymentController, ReplicaSetController
from scheduler.playground.run import Playground, node_specs, run_playground, start_controllers
from scheduler.playground.server import PlaygroundServer, ThreadedServer, start_in_thread

__all__ = [
    "ApiOptions",
    "DeploymentController",
    "FakeKubelet",
    "Fault",
    "Faults",
    "JobController",
    "NodeSpec",
    "Playground",
    "PlaygroundServer",
    "ReplicaSetController",
    "ThreadedServer",
    "node_specs",
    "run_playground",
    "start_controllers",
    "start_in_thread",
]
