"""Who may look at the ports, as a real API server decides it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.cluster.access import Reviewer
from scheduler.cluster.client import ApiClient
from tests.controlplane.cluster import ControlPlane

RBAC = Path(__file__).parents[2] / "config" / "rbac"
ROLES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: access-test-reader}
rules: [{nonResourceURLs: [/metrics, /page], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access-test-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: access-test-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: access-test}]
---
apiVersion: v1
kind: Namespace
metadata: {name: access-test}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: access-test}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other, namespace: access-test}
"""


@pytest.mark.real
async def test_a_token_is_let_in_where_its_account_may_get_the_path(
    real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster = real_control_plane
    cluster.kubectl("apply", "-f", str(RBAC))
    cluster.kubectl("apply", "-f", "-", input=ROLES)
    own = cluster.service_account_token("muster-system", "muster")
    reader, other = (cluster.service_account_token("access-test", name) for name in ("reader", "other"))
    asked: list[str] = []
    async with ApiClient.connect(
        str(cluster.write_kubeconfig(tmp_path / "own", own)), on_request=lambda *call: asked.append(call[1])
    ) as client:
        client.fence = lambda: False  # a standby answers too
        reviewer = Reviewer(client)
        assert await reviewer.status(reader, "/metrics") == 200
        before = len(asked)
        assert await reviewer.status(reader, "/metrics") == 200
        assert len(asked) == before, "an answer holds for a while"
        assert await reviewer.status(reader, "/page") == 200
        assert await reviewer.status(reader, "/debug/state") == 403
        assert await reviewer.status(other, "/page") == 403
        assert await reviewer.status(other, "/metrics") == 403
        assert await reviewer.status(cluster.token, "/debug/snapshot") == 200
        assert await reviewer.status("nonsense", "/metrics") == 401
        assert await reviewer.status("", "/metrics") == 401


async def test_nobody_is_let_in_while_the_api_server_cannot_be_asked(tmp_path: Path) -> None:
    nowhere = tmp_path / "config"
    nowhere.write_text(
        '{"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {}}],'
        '"clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],'
        '"contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}'
    )
    async with ApiClient.connect(str(nowhere)) as client:
        assert await Reviewer(client).status("any", "/metrics") == 503
