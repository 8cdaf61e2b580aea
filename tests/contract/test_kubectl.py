"""kubectl as people use it, against both servers."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.contract.conftest import CRDS, GROUP, Server, eventually, gadget_crd, pod
from tests.controlplane import build
from tests.controlplane.rest import Json

Kubectl = Callable[..., str]


class KubectlFailed(Exception):
    """kubectl ended with an error; the text is what it said."""


@pytest.fixture
def kubectl(server: Server) -> Kubectl:
    """Run kubectl in the test's namespace and return what it prints."""
    command = [*build.program("kubectl"), f"--kubeconfig={server.kubeconfig}", f"--namespace={server.namespace}"]

    def run(*arguments: str, manifest: Any = None) -> str:
        text = yaml.safe_dump_all(manifest if isinstance(manifest, list) else [manifest]) if manifest else None
        done = subprocess.run(
            [*command, *arguments], input=text, capture_output=True, text=True, timeout=90, check=False
        )
        if done.returncode:
            raise KubectlFailed(done.stderr)
        return done.stdout

    return run


@pytest.fixture
def crd(server: Server) -> Iterator[Json]:
    """A CRD that the test applies; it is taken away afterwards."""
    made = gadget_crd(f"g{secrets.token_hex(3)}.{GROUP}")
    yield made
    server.rest.delete_if_present(f"{CRDS}/{made['metadata']['name']}")


def test_apply_get_change_and_delete_a_pod(server: Server, kubectl: Kubectl) -> None:
    manifest = pod("p", labels={"app": "x"})
    assert kubectl("apply", "-f", "-", manifest=manifest) == "pod/p created\n"
    assert kubectl("apply", "-f", "-", manifest=manifest) == "pod/p unchanged\n"
    manifest["spec"]["containers"][0]["image"] = "app:2"
    assert kubectl("apply", "-f", "-", manifest=manifest) == "pod/p configured\n"
    assert server.rest.get(server.path("pods", "p"))["spec"]["containers"][0]["image"] == "app:2"
    head, row = kubectl("get", "pods").splitlines()
    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["p", "0/1", "Pending", "0"]
    wide = kubectl("get", "pods", "-o", "wide", "--selector=app=x").splitlines()[0]
    assert "NOMINATED NODE" in wide
    assert kubectl("get", "pod/p", "-o", "jsonpath={.spec.schedulerName}") == "none"
    assert kubectl("delete", "pod", "p").startswith('pod "p" deleted')
    with pytest.raises(KubectlFailed, match='pods "p" not found'):
        kubectl("get", "pod", "p")


def test_describe_shows_events_of_the_pod(server: Server, kubectl: Kubectl) -> None:
    created = server.pod("p")
    about = {"kind": "Pod", "namespace": server.namespace, "name": "p", "uid": created["metadata"]["uid"]}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "GangWaiting", "message": "2 GPUs short"}
    server.rest.create(server.path("events"), {**event, "type": "Warning"})
    text = kubectl("describe", "pod", "p")
    assert "Name:             p" in text or "Name:         p" in text
    assert "GangWaiting" in text
    assert "2 GPUs short" in text


def test_a_definition_can_be_applied_awaited_and_used(server: Server, kubectl: Kubectl, crd: Json) -> None:
    name = crd["metadata"]["name"]
    assert kubectl("apply", "-f", "-", manifest=crd).endswith("created\n")
    waited = kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")
    assert waited.endswith("condition met\n")
    manifest = {
        "apiVersion": f"{crd['spec']['group']}/v1",
        "kind": "Gadget",
        "metadata": {"name": "g"},
        "spec": {"size": 3},
    }
    eventually(lambda: server.rest.get(f"/apis/{crd['spec']['group']}/v1"))
    assert kubectl("apply", "-f", "-", manifest=manifest).endswith("created\n")
    assert kubectl("apply", "-f", "-", manifest=manifest).endswith("unchanged\n")
    head, row = kubectl("get", name).splitlines()
    assert (head.split(), row.split()) == (["NAME", "SIZE"], ["g", "3"])
    bad = {**manifest, "metadata": {"name": "bad"}, "spec": {"size": 0}}
    with pytest.raises(KubectlFailed, match=r"spec\.size in body should be greater than or equal to 1"):
        kubectl("apply", "-f", "-", manifest=bad)
    misspelt = {**manifest, "metadata": {"name": "bad"}, "spec": {"size": 1, "sise": 1}}
    with pytest.raises(KubectlFailed, match=r'unknown field "spec\.sise"'):
        kubectl("apply", "-f", "-", manifest=misspelt)
    assert kubectl("delete", name, "g").startswith(f'gadget.{crd["spec"]["group"]} "g" deleted')


def test_server_side_apply_after_client_side_apply_keeps_working(server: Server, kubectl: Kubectl) -> None:
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    manifest: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    kubectl("apply", "-f", "-", manifest=manifest)
    template["spec"]["containers"][0]["image"] = "x:2"  # type: ignore[index]
    assert kubectl("apply", "--server-side", "-f", "-", manifest=manifest).endswith("serverside-applied\n")
    path = server.path("deployments", "d", api="/apis/apps/v1")
    applied = server.rest.get(path)
    assert applied["spec"]["template"]["spec"]["containers"][0]["image"] == "x:2"
    server.rest.patch(path, {"spec": {"replicas": 0, "paused": True}}, fieldManager="somebody")
    spec["paused"] = False
    with pytest.raises(KubectlFailed, match=r'conflict with "somebody" using apps/v1: \.spec\.paused'):
        kubectl("apply", "--server-side", "-f", "-", manifest=manifest)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", manifest=manifest)
    assert not server.rest.get(path)["spec"].get("paused", False)


def test_wait_follows_a_pods_condition_and_its_deletion(server: Server, kubectl: Kubectl) -> None:
    server.pod("p")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    server.rest.patch(server.path("pods", "p", "status"), ready, kind="strategic")
    assert kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s") == "pod/p condition met\n"
    server.rest.delete(server.path("pods", "p"))
    kubectl("wait", "--for=delete", "pod/p", "--timeout=60s")


def test_label_annotate_patch_scale_and_dry_run(server: Server, kubectl: Kubectl) -> None:
    server.pod("p")
    assert kubectl("label", "pod", "p", "a=b").endswith("labeled\n")
    assert kubectl("annotate", "pod", "p", "c=d").endswith("annotated\n")
    kubectl("patch", "pod", "p", "--type=json", "-p", '[{"op": "remove", "path": "/metadata/labels/a"}]')
    found = server.rest.get(server.path("pods", "p"))["metadata"]
    assert "labels" not in found
    assert found["annotations"] == {"c": "d"}
    kubectl("apply", "--dry-run=server", "-f", "-", manifest=pod("dry"))
    assert server.refused("get", server.path("pods", "dry")).status == 404
    labels = {"app": "r"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "r"}, "spec": spec}
    kubectl("apply", "-f", "-", manifest=manifest)
    assert kubectl("scale", "deployment", "r", "--replicas=2").endswith("scaled\n")
    assert server.rest.get(server.path("deployments", "r", api="/apis/apps/v1"))["spec"]["replicas"] == 2


def test_discovery_names_what_a_user_types(server: Server, kubectl: Kubectl) -> None:
    listed = kubectl("api-resources", "--no-headers")
    for name in ("pods", "nodes", "jobs", "priorityclasses", "customresourcedefinitions", "podgroups", "leases"):
        assert any(line.split()[0] == name for line in listed.splitlines()), name
    versions = kubectl("version", "-o", "json")
    assert json.loads(versions)["serverVersion"]["minor"] == "37"
    assert kubectl("get", "po,no,ns,job", "--ignore-not-found") is not None


def test_a_kind_that_nobody_serves_is_explained(kubectl: Kubectl) -> None:
    manifest = {"apiVersion": "nobody.example.com/v1", "kind": "Nothing", "metadata": {"name": "x"}}
    with pytest.raises(KubectlFailed, match='no matches for kind "Nothing"'):
        kubectl("apply", "-f", "-", manifest=manifest)
