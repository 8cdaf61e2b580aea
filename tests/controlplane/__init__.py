"""A real Kubernetes control plane for tests: etcd, API server, kubelets as plain processes, no containers."""
