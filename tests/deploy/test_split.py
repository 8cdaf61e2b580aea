"""The chart with `split.enabled`: three Deployments, and what the account of each may do and may not.

The rights are told here once more, by component and in words, so that one that moves to another component is seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations

import pytest

from scheduler.dialects.owners import KINDS
from scheduler.model.components import Component
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import Json, Rest
from tests.deploy import helm
from tests.deploy.rights import Grant, Right, held
from tests.deploy.test_chart import objects

pytestmark = [pytest.mark.xdist_group("helm"), pytest.mark.timeout(900)]
COMPONENTS = [one.value for one in Component]
SPLIT = "split.enabled=true"
OWN = {
    "scheduler": {
        "get pods",
        "get statefulsets.apps",
        "get jobs.batch",
        "patch pods/status",
        "patch podgroups/status.scheduling.muster.sh",
        "patch queues/status.scheduling.muster.sh",
        "patch topologies/status.scheduling.muster.sh",
        "patch podgroups.scheduling.volcano.sh",  # its status is a part of it in most releases
        "patch podgroups/status.scheduling.volcano.sh",
        "patch queues/status.scheduling.volcano.sh",
        "patch podgroups/status.scheduling.x-k8s.io",
        "patch podgroups/status.scheduling.k8s.io",
        "patch podgroups/status.scheduling.run.ai",
        "patch queues/status.scheduling.run.ai",
        "patch hypernodes/status.topology.volcano.sh",
        "get bindrequests.scheduling.muster.sh",
        "create bindrequests.scheduling.muster.sh",
        "patch bindrequests.scheduling.muster.sh",
    },
    "binder": {
        "get pods",
        "delete pods",
        "create pods/binding",
        "create pods/eviction",
        "patch pods/status",
        "get persistentvolumeclaims",
        "patch persistentvolumeclaims",
        "get persistentvolumes",
        "patch persistentvolumes",
        "delete bindrequests.scheduling.muster.sh",
        "patch bindrequests/status.scheduling.muster.sh",
    },
    "controllers": {
        "get pods",
        "get statefulsets.apps",
        "get jobs.batch",
        "create podgroups.scheduling.muster.sh",
        "patch podgroups.scheduling.muster.sh",
        "delete podgroups.scheduling.muster.sh",
    },
}
"""What each component may beside looking."""
ALL = {
    "create tokenreviews.authentication.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
    "create events.events.k8s.io",
    "create leases.coordination.k8s.io",
}
LEASES = {
    "scheduler": {("get", "muster"), ("update", "muster"), ("get", "muster-binder")},
    "binder": {("get", "muster"), ("get", "muster-binder"), ("update", "muster-binder")},
    "controllers": {("get", "muster-controllers"), ("update", "muster-controllers")},
}
NEVER = {
    "scheduler": [
        *(Right(verb, "", "pods") for verb in ("create", "delete", "deletecollection", "patch", "update")),
        *(Right("create", "", f"pods/{what}") for what in ("binding", "eviction", "exec")),
        *(Right(verb, "", what) for verb in ("patch", "update", "delete")
          for what in ("persistentvolumes", "persistentvolumeclaims")),
        *(Right(verb, "scheduling.muster.sh", "podgroups") for verb in ("create", "patch", "update", "delete")),
        *(Right(verb, "scheduling.muster.sh", "bindrequests") for verb in ("update", "delete", "deletecollection")),
        Right("patch", "scheduling.muster.sh", "bindrequests/status"),
    ],
    "binder": [
        *(Right("patch", group, f"{what}/status") for group, what in (
            ("scheduling.muster.sh", "podgroups"), ("scheduling.muster.sh", "queues"),
            ("scheduling.muster.sh", "topologies"), ("scheduling.volcano.sh", "podgroups"),
            ("scheduling.x-k8s.io", "podgroups"), ("scheduling.k8s.io", "podgroups"),
            ("scheduling.run.ai", "podgroups"))),
        *(Right(verb, "scheduling.muster.sh", "podgroups") for verb in ("create", "patch", "update", "delete")),
        *(Right(verb, "scheduling.muster.sh", "bindrequests") for verb in ("create", "patch", "update")),
        *(Right(verb, "", "pods") for verb in ("create", "patch", "update")),
    ],
    "controllers": [
        *(Right(verb, "", "pods") for verb in ("create", "delete", "patch", "update")),
        *(Right("create", "", f"pods/{what}") for what in ("binding", "eviction")),
        Right("patch", "", "pods/status"),
        *(Right("patch", "", what) for what in ("persistentvolumes", "persistentvolumeclaims")),
        *(Right(verb, "scheduling.muster.sh", "bindrequests") for verb in ("create", "patch", "update", "delete")),
        Right("patch", "scheduling.muster.sh", "bindrequests/status"),
        Right("patch", "scheduling.muster.sh", "podgroups/status"),
    ],
}  # fmt: skip
NEVER_ANY = [
    *(Right(verb, "", "secrets") for verb in ("get", "list")),
    *(Right("patch", "scheduling.muster.sh", what) for what in ("queues", "topologies")),
    Right("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    Right("create", "", "serviceaccounts/token"),
    Right("impersonate", "", "serviceaccounts"),
]


def grants(*values: str) -> dict[str, set[Grant]]:
    """Return what the accounts of a release `muster` have by the chart."""
    return held(objects(helm.template(*values)).values())


def looking(found: set[Grant]) -> set[Right]:
    """Return the rights to look at all objects of a kind."""
    return {one.right for one in found if one.right.verb in ("list", "watch")}


# -- what is rendered -------------------------------------------------------------------------------------------------


def test_each_component_has_its_own_rights_and_no_others():
    whole, found = grants()["muster"], grants(SPLIT)
    assert found.keys() == {f"muster-{component}" for component in COMPONENTS}
    for component in COMPONENTS:
        own = found[f"muster-{component}"]
        named = {(one.right.verb, one.name) for one in own if one.name}
        assert named == LEASES[component]
        assert {one.right.resource for one in own if one.name} == {"leases"}
        plain = {str(one.right) for one in own if not one.name and one.right not in looking(own)}
        assert plain == OWN[component] | ALL
        bound_to = {one.namespace for one in own if one.right.resource.startswith(("bindrequests", "leases"))}
        assert bound_to == {"muster-system"}
    assert looking(found["muster-scheduler"]) == looking(found["muster-controllers"]) == looking(whole)
    assert {one.group for one in looking(whole) - looking(found["muster-binder"])} == {kind.group for kind in KINDS}


def test_the_components_have_together_what_one_process_has():
    whole, found = grants()["muster"], grants(SPLIT)
    together = set().union(*found.values())
    assert whole - together == set(), "whose is it?"
    assert {(one.right.verb, one.name) for one in together - whole} == {
        ("update", "muster-binder"), ("get", "muster-controllers"), ("update", "muster-controllers"),
    }  # fmt: skip


def test_without_grouping_the_controllers_only_take_groups_away():
    found = grants(SPLIT, 'config.grouping={"enabled":false}')
    own = found["muster-controllers"]
    of_groups = {one.right.verb for one in own if one.right.resource == "podgroups"}
    assert of_groups == {"list", "watch", "delete"}
    assert looking(own) == looking(found["muster-binder"])
    made = objects(helm.template(SPLIT, 'config.grouping={"enabled":false}'))
    assert ("Deployment", "muster-controllers") in made


def test_the_leases_are_called_after_the_configuration():
    found = grants(SPLIT, 'config={"leaderElection":{"name":"gpu"}}')
    for component in COMPONENTS:
        named = {(one.right.verb, one.name) for one in found[f"muster-{component}"] if one.name}
        assert named == {(verb, name.replace("muster", "gpu", 1)) for verb, name in LEASES[component]}


def test_the_accounts_are_called_after_the_one_that_is_asked_for():
    made = objects(helm.template(SPLIT, 'serviceAccount={"name":"gang","annotations":{"a":"b"}}'))
    accounts = {name: one for (kind, name), one in made.items() if kind == "ServiceAccount"}
    assert accounts.keys() == {f"gang-{component}" for component in COMPONENTS} == held(made.values()).keys()
    assert all(one["metadata"]["annotations"] == {"a": "b"} for one in accounts.values())
    used = {one["spec"]["template"]["spec"]["serviceAccountName"] for one in deployments(made).values()}
    assert used == accounts.keys()


def deployments(made: dict[tuple[str, str], Json]) -> dict[str, Json]:
    """Return the Deployments by name."""
    return {name: one for (kind, name), one in made.items() if kind == "Deployment"}


def test_each_component_is_a_deployment_that_runs_only_it_and_has_pods_of_its_own():
    made = objects(helm.template(SPLIT, "replicas=3"))
    found = deployments(made)
    assert found.keys() == {f"muster-{component}" for component in COMPONENTS}
    for component in COMPONENTS:
        one = found[f"muster-{component}"]
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["run", "--config=/etc/muster/config.yaml", f"--only={component}"]
        assert one["spec"]["replicas"] == 3
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert (
            labels["app.kubernetes.io/component"]
            == component
            == one["metadata"]["labels"]["app.kubernetes.io/component"]
        )
        [term] = one["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
        selector = one["spec"]["selector"]
        assert term["podAffinityTerm"]["labelSelector"] == selector
        assert selector == made["PodDisruptionBudget", f"muster-{component}"]["spec"]["selector"]
        assert selector["matchLabels"].items() <= labels.items()
        assert made["Service", "muster"]["spec"]["selector"].items() <= labels.items()
    for one, other in permutations(found.values(), 2):
        theirs = other["spec"]["template"]["metadata"]["labels"]
        assert not one["spec"]["selector"]["matchLabels"].items() <= theirs.items()
    assert ("PodDisruptionBudget", "muster") not in made


def test_one_process_has_no_component_and_apart_they_differ_in_nothing_else():
    [whole] = deployments(objects(helm.template())).values()
    [container] = whole["spec"]["template"]["spec"]["containers"]
    assert not [word for word in container["args"] if word.startswith("--only")]
    probes = {key: container[key] for key in ("livenessProbe", "readinessProbe", "resources", "securityContext")}
    for one in deployments(objects(helm.template(SPLIT))).values():
        [theirs] = one["spec"]["template"]["spec"]["containers"]
        assert {key: theirs[key] for key in probes} == probes


def test_a_component_may_have_resources_of_its_own():
    own, shared = (
        {"limits": {"memory": "1Gi"}},
        {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "4Gi"}},
    )
    sets = ('split.binder.resources={"limits":{"memory":"1Gi"}}', f"resources={json.dumps(shared)}")
    found = deployments(objects(helm.template(SPLIT, *sets)))
    of = {name: one["spec"]["template"]["spec"]["containers"][0]["resources"] for name, one in found.items()}
    assert of == {"muster-binder": own, "muster-controllers": shared, "muster-scheduler": shared}
    [whole] = deployments(objects(helm.template(sets[0]))).values()
    assert whole["spec"]["template"]["spec"]["containers"][0]["resources"] != own, "they are not apart"


def test_a_service_monitor_finds_the_service_of_all_components():
    made = objects(helm.template(SPLIT, "metrics.serviceMonitor.create=true"))
    wanted = made["ServiceMonitor", "muster"]["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= made["Service", "muster"]["metadata"]["labels"].items()


def test_components_that_know_of_no_lease_are_refused():
    sets = [SPLIT, 'config.leaderElection={"leaderElect":false}']
    words = [word for one in sets for word in ("--set-json", one)]
    said = helm.run("template", "muster", str(helm.CHART), "--kube-version", helm.K8S_VERSION, *words, check=False)
    assert said.returncode
    assert "remove config.leaderElection.leaderElect" in said.stderr


# -- what a real API server makes of it -------------------------------------------------------------------------------


class Release:
    """The chart, installed under the name `gang` in a namespace."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self.rest: Rest = cluster.rest
        self.namespace, self._kubeconfig = namespace, cluster.kubeconfig

    def helm(self, verb: str, split: bool) -> str:
        """Install or upgrade it; return what is said."""
        sets = f"crds.install=false,rbac.aggregateRoles=false,split.enabled={str(split).lower()}"
        chart = ("gang", str(helm.CHART), "--namespace", self.namespace, "--set", sets)
        return helm.run(verb, *chart, kubeconfig=self._kubeconfig).stdout

    def second(self) -> str:
        """Try to install another release beside it; return the refusal."""
        where = ("--namespace", self.namespace, "--set", "crds.install=false,rbac.aggregateRoles=false")
        done = helm.run("install", "other", str(helm.CHART), *where, kubeconfig=self._kubeconfig, check=False)
        assert done.returncode
        return done.stderr

    def names(self, path: str) -> set[str]:
        """Return the names of the release's objects of a kind."""
        found = self.rest.list(path.format(namespace=self.namespace))
        labels = [(one["metadata"]["name"], one["metadata"].get("labels", {})) for one in found]
        return {name for name, own in labels if own.get("app.kubernetes.io/instance") == "gang"}

    def processes(self) -> set[str]:
        """Return the names of the Deployments; there are as many accounts and disruption budgets, called the same."""
        found = self.names("/apis/apps/v1/namespaces/{namespace}/deployments")
        assert found == self.names("/api/v1/namespaces/{namespace}/serviceaccounts")
        assert found == self.names("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
        return found

    def may(self, account: str, right: Right, namespace: str, name: str = "") -> bool:
        """Return what the API server says of a right of an account."""
        resource, _, sub = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": sub,
                      "namespace": namespace, "name": name}  # fmt: skip
        review: Json = {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": f"system:serviceaccount:{self.namespace}:{account}", "resourceAttributes": attributes,
                     "groups": ["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}",
                                "system:authenticated"]},
        }  # fmt: skip
        answer = self.rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    def settles(self, account: str, right: Right, namespace: str, name: str = "", *, wanted: bool = True) -> bool:
        """Return whether that is what the API server comes to say; it hears of new roles a moment later."""
        deadline = time.monotonic() + 10
        while self.may(account, right, namespace, name) is not wanted:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


@contextmanager
def installed(cluster: ControlPlane, namespace: str) -> Iterator[Release]:
    """Install it with its components apart, in a namespace where Pod Security is enforced."""
    one = Release(cluster, namespace)
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    one.rest.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": enforced}})
    try:
        said = one.helm("install", split=True)
        assert "deployment/gang-binder" in said, "the notes tell what to wait for"
        yield one
    finally:
        helm.run("uninstall", "gang", "--namespace", namespace, kubeconfig=cluster.kubeconfig, check=False)
        one.rest.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture(scope="module")
def release(real_control_plane: ControlPlane) -> Iterator[Release]:
    """The release, for those who only ask."""
    with installed(real_control_plane, "chart-split") as one:
        yield one


@pytest.mark.real
def test_every_right_is_given_to_those_whose_it_is_and_refused_to_the_others(release: Release):
    documents = objects(helm.template(SPLIT, name="gang", namespace=release.namespace)).values()
    found = held(documents)
    assert found.keys() == release.processes()
    for grant in sorted(set().union(*found.values())):
        where = grant.namespace or "default"
        for account, own in found.items():
            everywhere = Grant(grant.right, grant.namespace)  # not only on the object of one name
            wanted = grant in own or everywhere in own
            assert release.settles(account, grant.right, where, grant.name, wanted=wanted), f"{account}: {grant}"
            if grant.namespace:
                assert not release.may(account, grant.right, "default", grant.name), f"{account}: {grant} elsewhere"


@pytest.mark.real
@pytest.mark.parametrize("component", COMPONENTS)
def test_no_account_may_do_what_is_never_its_components(release: Release, component: str):
    account, home = f"gang-{component}", release.namespace
    for name in ("muster", "muster-binder", "muster-controllers", "muster-scheduler"):
        for verb in ("get", "update"):
            lease, wanted = Right(verb, "coordination.k8s.io", "leases"), (verb, name) in LEASES[component]
            assert release.settles(account, lease, home, name, wanted=wanted), f"{component}: {verb} {name}"
            assert not release.may(account, lease, "default", name)
    for right in [*NEVER[component], *NEVER_ANY]:
        for namespace in (home, "default", ""):
            assert not release.may(account, right, namespace), (
                f"{component}: {right} in {namespace or 'all namespaces'}"
            )


@pytest.mark.real
def test_an_upgrade_takes_the_components_together_and_apart_again(real_control_plane: ControlPlane):
    apart = {f"gang-{component}" for component in COMPONENTS}
    bind = Right("create", "", "pods/binding")
    with installed(real_control_plane, "chart-switch") as release:
        assert release.processes() == apart
        for one in apart:
            path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/{one}"
            template = release.rest.get(path)["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = {"name": "probe", "labels": template["metadata"]["labels"]}
            release.rest.create(f"/api/v1/namespaces/{release.namespace}/pods", pod, dryRun="All")
        release.helm("upgrade", split=False)
        assert release.processes() == {"gang"}
        assert release.settles("gang", bind, "default")
        assert release.settles("gang-binder", bind, "default", wanted=False)
        roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"
        assert release.names(roles) == {"gang", "gang-scheduler", "gang-binder", "gang-lease"}
        release.helm("upgrade", split=True)
        assert release.processes() == apart
        assert "has Muster already, as release gang" in release.second()
        assert release.settles("gang-binder", bind, "default")
        assert release.settles("gang", bind, "default", wanted=False)
