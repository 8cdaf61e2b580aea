"""Starts a control plane for a person: `python -m tests.controlplane.up --nodes 2`, Ctrl-C ends it.

Decides nothing about clusters; it is the command line of cluster.py.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from tests.controlplane.build import BuildError, say
from tests.controlplane.cluster import ControlPlane, StartError
from tests.controlplane.fixtures import CRD_FOLDER, GPU


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane.up", description=__doc__)
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="real kubelets worker-1 ... worker-N")
    parser.add_argument("--gpus", type=int, default=2, metavar="N", help=f"{GPU} of each kubelet (default 2)")
    parser.add_argument("--fake-nodes", type=int, default=0, metavar="N", help="nodes that are only objects")
    parser.add_argument("--scheduler", action="store_true", help="run kube-scheduler too")
    parser.add_argument("--benchmark", action="store_true", help="no controllers, no priority and fairness")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    stop = threading.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda *_: stop.set())
    say("starting etcd and kube-apiserver")
    with ControlPlane(scheduler=options.scheduler, benchmark=options.benchmark) as cluster:
        say(f"installed {len(cluster.apply_crds(CRD_FOLDER))} custom resource definitions")
        names = [f"worker-{number}" for number in range(1, options.nodes + 1)]
        for name in names:
            cluster.start_kubelet(name, {GPU: options.gpus} if options.gpus else None, wait=False)
        for number in range(1, options.fake_nodes + 1):
            cluster.register_node(f"fake-{number}", {"cpu": "64", "memory": "256Gi", GPU: 8})
        for name in names:
            say(f"waiting for node {name}")
            cluster.wait_node(name)
        say(f"logs are in {cluster.directory}; Ctrl-C ends everything; use it with")
        print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
        stop.wait()
        say("stopping")


if __name__ == "__main__":
    try:
        main()
    except (BuildError, StartError) as error:
        sys.exit(f"error: {error}")
