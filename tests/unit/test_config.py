"""Configuration files: defaults, errors with a path and the nearest name, Volcano's form."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from plugins import built_in
from scheduler.app import RunOptions, load_configuration, with_options
from scheduler.config import ConfigError, SchedulerConfiguration, parse, parse_duration
from scheduler.framework.hooks import Hooks

ACTIONS, PLUGINS = ("enqueue", "allocate"), ("gang", "priority", "predicates", "queues", "binpack")
HEAD = {"apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration"}


def read(**keys: object) -> SchedulerConfiguration:
    return parse({**HEAD, **keys}, actions=ACTIONS, plugins=PLUGINS)


def test_the_default_file_says_just_the_defaults() -> None:
    assert load_configuration(Path("config/default.yaml")) == SchedulerConfiguration()


@pytest.mark.parametrize(
    ("keys", "path", "hint"),
    [
        ({"sessionPeroid": "1s"}, "sessionPeroid", 'did you mean "sessionPeriod"'),
        ({"solver": {"walLimit": "1s"}}, "solver.walLimit", 'did you mean "wallLimit"'),
        ({"actions": "enqueue, alocate"}, "actions[1]", 'did you mean "allocate"'),
        ({"actions": ""}, "actions", "names no action"),
        ({"tiers": [{"plugins": [{"name": "gagn"}]}]}, "tiers[0].plugins[0].name", 'did you mean "gang"'),
        (
            {"tiers": [{"plugins": [{"name": "gang"}]}, {"plugins": [{"name": "gang"}]}]},
            "tiers[1].plugins[0].name",
            "already",
        ),
        ({"tiers": []}, "tiers", "non-empty"),
        ({"sessionPeriod": "soon"}, "sessionPeriod", "not a duration"),
        ({"solver": {"workers": 0}}, "solver.workers", "between 1"),
        ({"solver": {"workers": True}}, "solver.workers", "integer"),
        ({"leaderElection": {"leaseDuration": "1s"}}, "leaderElection", "renewDeadline"),
        ({"schedulerNames": []}, "schedulerNames", "non-empty"),
        ({"schedulerNames": [""]}, "schedulerNames[0]", "non-empty"),
        ({"clientConnection": {"qps": -1}}, "clientConnection.qps", "between 0"),
        ({"kind": "Other"}, "kind", "must be"),
        ({"apiVersion": "v1"}, "apiVersion", "must be"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(keys: dict[str, object], path: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**keys)
    assert caught.value.path == path
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("500ms", 0.5), ("1m30s", 90), ("2h", 7200), (3, 3), (0.5, 0.5)]
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration("x", text) == seconds


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "1s ", -1, True, None])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ConfigError, match="not a duration"):
        parse_duration("x", text)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("healthAddress", "8080", "healthAddress: must be HOST:PORT, is '8080'"),
        ("healthAddress", "127.0.0.1:http", "healthAddress: must be HOST:PORT"),
        ("healthAddress", "127.0.0.1:65536", "healthAddress: must be HOST:PORT"),
        ("logFormat", "jsn", "logFormat: must be one of auto, json, console, is 'jsn'; did you mean \"json\"?"),
        ("leaderElection", {"namespace": 7}, "leaderElection.namespace: must be a non-empty string"),
        ("resyncPeriod", "0s", "resyncPeriod: must be at least 1s, is '0s'"),
        ("binder", {"deadline": "500ms"}, "binder.deadline: must be at least 1s, is '500ms'"),
        (
            "namespace",
            "My Space",
            "namespace: must be a name of lower case letters, digits, '-' and '.', is 'My Space'",
        ),
        ("leaderElection", {"name": "a/b"}, "leaderElection.name: must be a name of"),
        ("leaderElection", {"namespace": "A"}, "leaderElection.namespace: must be a name of"),
    ],
)
def test_a_value_that_would_fail_later_is_refused_at_once(key: str, value: object, says: str) -> None:
    document = {"apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration", key: value}
    with pytest.raises(ConfigError) as refused:
        parse(document, actions=ACTIONS, plugins=PLUGINS)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("option", "value"), [("health_address", "nonsense"), ("health_address", "h:1:x"), ("session_period", "soon")]
)
def test_an_option_that_cannot_be_used_is_refused_by_its_name(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^--{option.replace('_', '-')}: "):
        with_options(SchedulerConfiguration(), RunOptions(**{option: value}))  # type: ignore[arg-type]


def test_the_name_of_kube_scheduler_is_taken_with_a_warning() -> None:
    assert read(schedulerNames=["muster"]).warnings == ()
    (said,) = read(schedulerNames=["muster", "default-scheduler"]).warnings
    assert "two of one name fight over the same pods" in said


def test_an_option_wins_over_the_file() -> None:
    config = with_options(SchedulerConfiguration(), RunOptions(health_address="[::]:0", session_period="2s"))
    assert (config.health_address, config.session_period) == ("[::]:0", 2.0)


def test_volcanos_configuration_is_taken_over_and_what_is_left_out_is_said() -> None:
    document = yaml.safe_load("""
    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins:
      - {name: priority, enableJobOrder: true}
      - {name: gang, enablePreemptable: false}
    - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: binpack, arguments: {binpack.weight: 10}}]
    configurations: [{name: enqueue, arguments: {overcommit-factor: 1.5}}]
    """)
    config = parse(document, actions=ACTIONS, plugins=PLUGINS)
    assert config.actions == ("enqueue", "allocate")
    assert [[plugin.name for plugin in tier] for tier in config.tiers] == [
        ["priority", "gang"],
        ["predicates", "queues", "binpack"],
    ]
    assert config.scheduler_names == ("volcano", "muster")
    assert any('"drf"' in warning for warning in config.warnings)
    assert any('"backfill"' in warning for warning in config.warnings)
    assert config.tiers[1][2].weight == 10
    assert "configurations: left out, it has no counterpart here" in config.warnings
    assert any(warning.startswith("tiers[0].plugins[1].enablePreemptable:") for warning in config.warnings)
    assert not any("enableJobOrder" in warning for warning in config.warnings), "on is what it is here"


def test_volcanos_arguments_of_binpack_and_nodeorder_are_ours_by_other_names() -> None:
    document = yaml.safe_load("""
    actions: allocate
    tiers:
    - plugins:
      - name: binpack
        arguments:
          binpack.weight: 5
          binpack.cpu: 2
          binpack.resources: example.com/gpu
          binpack.resources.example.com/gpu: 7
      - {name: nodeorder, arguments: {leastrequested.weight: 1, mostrequested.weight: 3, podaffinity.weight: 2}}
    """)
    config = parse(document, actions=ACTIONS, plugins=built_in().names())
    packed, order = config.tiers[0][:2]
    assert (packed.weight, packed.arguments) == (5, {"cpu": 2, "example.com/gpu": 7})
    assert order.arguments == {"mostAllocated": 3}
    assert [warning.split(":")[0] for warning in config.warnings] == [
        "tiers[0].plugins[1].arguments.podaffinity.weight",
        "tiers[0].plugins[1].arguments",
    ]
    built_in().build(config.tiers)


def test_a_config_map_is_read_as_it_is_copied_from_a_cluster() -> None:
    inner = {"volcano-scheduler.conf": "actions: allocate\ntiers: [{plugins: [{name: priority}]}]"}
    content = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": inner})
    assert load_configuration(None, content=content.encode()).scheduler_names == ("volcano", "muster")
    two = yaml.safe_dump({"kind": "ConfigMap", "data": {"a": "", "b": ""}})
    with pytest.raises(ConfigError, match="data: a ConfigMap must have one entry"):
        load_configuration(None, content=two.encode())


def test_volcanos_predicates_are_several_plugins_here() -> None:
    document = yaml.safe_load("{actions: allocate, tiers: [{plugins: [{name: predicates}, {name: nodeorder}]}]}")
    config = parse(document, actions=ACTIONS, plugins=built_in().names())
    names = ["predicates", "hostports", "volumes", "spreading", "interpod", "nodeorder", "imagelocality"]
    assert [[plugin.name for plugin in tier] for tier in config.tiers] == [names]
    assert Hooks(built_in().build(config.tiers)).unkept == frozenset()


def test_a_file_that_is_not_yaml_or_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_configuration(tmp_path / "none.yaml")
    file = tmp_path / "bad.yaml"
    file.write_text("a: [")
    with pytest.raises(ConfigError, match="not YAML"):
        load_configuration(file)


def test_a_key_that_is_written_twice_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"the key 'seed' is written twice(.|\n)*line 2"):
        load_configuration(None, content=b"seed: 1\nseed: 2\n")


@pytest.mark.parametrize("content", [b"a: [", b"\x00\xff{", b"seed: 2001-99-99", b"seed: !!float x"])
def test_content_that_is_not_yaml_is_a_config_error_also_when_a_running_scheduler_reads_it_again(
    tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(ConfigError, match="not YAML"):
        load_configuration(None, content=content)
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.yaml: not YAML"):
        load_configuration(file)
