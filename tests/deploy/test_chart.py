"""The chart, by the real helm: what it renders, what it refuses, and what it makes of a real API server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.app import load_configuration
from scheduler.config import KEYS
from scheduler.dialects.owners import KINDS
from scheduler.dialects.registry import DIALECTS
from scheduler.io_process import _FIXED
from tests.controlplane.cluster import ControlPlane
from tests.deploy import helm
from tests.deploy.rights import held

Json = dict[str, Any]
ROOT = helm.ROOT
pytestmark = [pytest.mark.xdist_group("helm"), pytest.mark.timeout(900)]


def objects(text: str) -> dict[tuple[str, str], Json]:
    """Return every object of a rendered text by kind and name."""
    found = [one for one in yaml.safe_load_all(text) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


def test_the_chart_passes_helms_own_check():
    helm.run("lint", "--strict", str(helm.CHART))


def test_the_kustomization_is_the_chart_with_its_defaults():
    assert helm.RENDERED.read_text() == helm.kustomized(), "run `python -m tests.deploy.helm render`"


def test_the_mounted_configuration_is_one_that_muster_reads():
    config = 'config={"schedulerNames":["volcano","muster"],"leaderElection":{"name":"other"},"sessionPeriod":"2s"}'
    made = objects(helm.template(config, "port=9090", namespace="gang"))
    text = made["ConfigMap", "muster"]["data"]["config.yaml"]
    read = load_configuration(None, content=text.encode())
    assert read.scheduler_names == ("volcano", "muster")
    assert (read.namespace, read.health_address, read.session_period) == ("gang", "0.0.0.0:9090", 2.0)
    lease = made["Role", "muster-lease"]["rules"]
    assert [rule["resourceNames"] for rule in lease] == [["other"], ["other-binder"]]


def digest(*values: str) -> str:
    template = objects(helm.template(*values))["Deployment", "muster"]["spec"]["template"]
    return str(template["metadata"]["annotations"]["scheduling.muster.sh/fixed-configuration"])


def test_pods_are_replaced_when_the_configuration_changes_in_what_a_process_cannot_take_over():
    plain = digest()
    assert plain == digest('config={"schedulerNames":["muster"],"sessionPeriod":"5s"}'), "this one is read again"
    changed = ['schedulerNames=["x"]', 'binder={"deadline":"9s"}', 'grouping={"enabled":false}']
    assert len({plain, *(digest(f"config.{one}") for one in changed), digest("port=9090")}) == 5
    named = {"".join(word.capitalize() if at else word for at, word in enumerate(name.split("_"))) for name in _FIXED}
    text = (helm.CHART / "templates" / "_helpers.tpl").read_text()
    [line] = [line for line in text.splitlines() if "$fixed := pick" in line]
    assert set(re.findall(r'"(\w+)"', line.split("fromYaml")[1])) == named


def test_the_environment_is_given_to_the_process():
    made = objects(helm.template('env=[{"name":"OTEL_EXPORTER_OTLP_ENDPOINT","value":"http://collector:4318"}]'))
    [container] = made["Deployment", "muster"]["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replica=3", "replica"),
        ('env=["A=1"]', "env"),
        ("replicas=0", "replicas"),
        ('image={"repositry":"x"}', "repositry"),
        ('image.digest="sha256:12"', "digest"),
        ('config={"namespace":"elsewhere"}', "config.namespace"),
        ('config={"healthAddress":"1.2.3.4:80"}', "config.healthAddress"),
        ("port=80", "port"),
        ("config=null", "config"),
        ('config={"leaderElection":null}', "leaderElection"),
        ('config={"schedulerNames":"muster"}', "schedulerNames"),
        ('config={"schedulerNames":[]}', "schedulerNames"),
        ('config={"schedulernames":["muster"]}', "schedulernames"),
        ('podDisruptionBudget.maxUnavailable="abc"', "maxUnavailable"),
        ('serviceAccount.name="a b"', "serviceAccount"),
        ("priorityClass.create=true", "priorityClass"),
        ('podLabels={"app.kubernetes.io/name":"other"}', "podLabels"),
        ('extraArgs=["--health-address=0.0.0.0:9"]', "extraArgs"),
        ('extraArgs=["--only=binder"]', "extraArgs"),
        ('split.enabled="yes"', "split"),
        ('split.binders={"resources":{}}', "binders"),
    ],
)
def test_a_wrong_value_is_refused_by_name(value: str, named: str):
    said = helm.run(
        "template", "muster", str(helm.CHART), "--kube-version", helm.K8S_VERSION, "--set-json", value, check=False
    )
    assert said.returncode
    assert named in said.stderr


def test_the_schema_knows_the_keys_of_a_configuration():
    schema = json.loads((helm.CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["config"]["properties"]) == set(KEYS)
    objects(helm.template("priorityClass.create=true", 'priorityClass.name="muster"', 'podLabels={"team":"a"}'))
    objects(helm.template('podDisruptionBudget.maxUnavailable="50%"', 'extraArgs=["--scheduler-name","muster"]'))


def test_the_rights_are_those_of_config_rbac():
    made, written = helm.template(), (ROOT / "config" / "rbac" / "muster.yaml").read_text()
    assert held(objects(made).values()) == held(objects(written).values())


@pytest.mark.parametrize(("name", "joined"), [("viewer", ["view"]), ("editor", ["edit", "admin"])])
def test_who_may_view_or_edit_a_namespace_may_so_with_the_groups_of_every_api_in_it(name: str, joined: list[str]):
    role = objects(helm.template())["ClusterRole", f"muster-pod-group-{name}"]
    labels = role["metadata"]["labels"]
    assert all(labels[f"rbac.authorization.k8s.io/aggregate-to-{one}"] == "true" for one in joined)
    seen = {(group, one) for rule in role["rules"] for group in rule["apiGroups"] for one in rule["resources"]}
    assert seen == {(one.group, one.plural) for api in DIALECTS for one in api.resources if one.role == "group"}


def test_owners_may_be_read_only_where_their_pods_are_grouped():
    made = objects(helm.template())
    off = objects(helm.template('config.grouping={"enabled":false}'))
    roles = {f"muster-system:muster-{name}" for name in ("owners", "groups")}
    assert made.keys() - off.keys() == {
        (kind, name) for kind in ("ClusterRole", "ClusterRoleBinding") for name in roles
    }
    left = {one.right.group for one in held(off.values())["muster"]}
    assert left.isdisjoint({kind.group for kind in KINDS})
    on = objects(helm.template('config.grouping={"enabled":true}'))
    assert on.keys() == made.keys()


def test_one_replica_has_no_disruption_budget_and_a_service_monitor_is_made_when_asked_for():
    made = objects(helm.template("replicas=1", 'metrics={"serviceMonitor":{"create":true,"labels":{"team":"a"}}}'))
    assert not [kind for kind, _ in made if kind == "PodDisruptionBudget"]
    monitor = made["ServiceMonitor", "muster"]
    assert monitor["metadata"]["labels"]["team"] == "a"
    service = made["Service", "muster"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service.items()


def test_every_value_is_in_the_readme():
    values = yaml.safe_load((helm.CHART / "values.yaml").read_text())
    rows = {
        line.split("|")[1].strip().strip("`")
        for line in (helm.CHART / "README.md").read_text().splitlines()
        if line.startswith("| `")
    }

    def leaves(node: Any, path: str) -> list[str]:
        if isinstance(node, dict) and node and path not in ("config", "resources"):
            return [leaf for key, one in node.items() for leaf in leaves(one, f"{path}.{key}" if path else key)]
        return [path]

    assert rows == set(leaves(values, ""))


def test_the_image_is_made_of_files_that_are_there_and_let_in():
    copied = []
    for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            copied += words[1:-1]
    assert set(copied) >= {"scheduler", "plugins", "config", "pyproject.toml"}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in copied:
        assert (ROOT / name).exists()
        assert name in let_in


@pytest.fixture
def kubeconfig(real_control_plane: ControlPlane) -> Path:
    return real_control_plane.kubeconfig


@pytest.mark.real
def test_it_installs_upgrades_and_leaves_the_kinds_when_it_goes(real_control_plane: ControlPlane, kubeconfig: Path):
    rest, namespace = real_control_plane.rest, "chart-test"
    # Its own server's kinds are those of config/crd, made by the tests: helm may take over only what it made.
    options = ["--namespace", namespace, "--set", "crds.install=false"]
    rest.create("/api/v1/namespaces", {"metadata": {
        "name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})  # fmt: skip
    try:
        helm.run("install", "gang", str(helm.CHART), *options, kubeconfig=kubeconfig)
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/gang"
        deployment = rest.get(path)
        assert deployment["spec"]["replicas"] == 2
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, **deployment["spec"]["template"]}
        pod["metadata"] = {"name": "probe", "labels": pod["metadata"]["labels"]}
        made = rest.create(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")
        assert made["spec"]["serviceAccountName"] == "gang"
        helm.run(
            "upgrade", "gang", str(helm.CHART), *options, "--set", "replicas=3", "--set-json",
            'config={"schedulerNames":["muster","volcano"]}', kubeconfig=kubeconfig,
        )  # fmt: skip
        assert rest.get(path)["spec"]["replicas"] == 3
        config = rest.get(f"/api/v1/namespaces/{namespace}/configmaps/gang")["data"]["config.yaml"]
        assert "volcano" in config
        helm.run("rollback", "gang", "1", "--namespace", namespace, kubeconfig=kubeconfig)
        assert rest.get(path)["spec"]["replicas"] == 2
        helm.run("uninstall", "gang", "--namespace", namespace, kubeconfig=kubeconfig)
        assert not rest.list(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        assert not [one for one in rest.list("/apis/rbac.authorization.k8s.io/v1/clusterroles")
                    if one["metadata"]["name"] == f"{namespace}:gang"]  # fmt: skip
    finally:
        rest.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.real
def test_kinds_that_were_applied_by_hand_are_taken_over_kept_and_a_second_release_is_refused(
    real_control_plane: ControlPlane, kubeconfig: Path
):
    rest, namespace = real_control_plane.rest, "chart-kinds"
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.muster.sh"
    options = ["--namespace", namespace, "--create-namespace"]
    try:
        refused = helm.run("install", "gang", str(helm.CHART), *options, kubeconfig=kubeconfig, check=False)
        assert refused.returncode
        assert "cannot be imported into the current release" in refused.stderr
        helm.run("install", "gang", str(helm.CHART), *options, "--take-ownership", kubeconfig=kubeconfig)
        kept = rest.get(crd)["metadata"]
        assert kept["annotations"]["meta.helm.sh/release-name"] == "gang"
        second = [
            "install",
            "other",
            str(helm.CHART),
            *options,
            "--set",
            "crds.install=false,rbac.aggregateRoles=false",
        ]
        refused = helm.run(*second, kubeconfig=kubeconfig, check=False)
        assert "namespace chart-kinds has Muster already, as release gang" in refused.stderr
        helm.run("uninstall", "gang", "--namespace", namespace, kubeconfig=kubeconfig)
        assert rest.get(crd)["metadata"]["uid"] == kept["uid"]
        assert "deletionTimestamp" not in rest.get(crd)["metadata"]
    finally:
        rest.delete_if_present(f"/api/v1/namespaces/{namespace}")


def test_the_kinds_are_kept_and_are_those_of_config_crd():
    made = {name: one for (kind, name), one in objects(helm.template()).items() if kind == "CustomResourceDefinition"}
    written = {}
    for file in sorted((ROOT / "config" / "crd").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            written[one["metadata"]["name"]] = one
    assert made.keys() == written.keys()
    for name, one in made.items():
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert json.dumps(one["spec"], sort_keys=True) == json.dumps(written[name]["spec"], sort_keys=True)
    assert not [name for kind, name in objects(helm.template("crds.install=false")) if "Definition" in kind]
