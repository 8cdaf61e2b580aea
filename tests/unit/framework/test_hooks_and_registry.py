from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins import built_in
from scheduler.config import PluginConfig
from scheduler.framework.hooks import HookRaised, Hooks
from scheduler.framework.protocols import Misfit, NoOpinion, Only
from scheduler.framework.registry import Arguments, BadPlugin, Configured, Registry
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Pod
from scheduler.model.verdict import Code, verdict
from tests.unit.framework.world import shape


def plugin(name: str, **hooks: Any) -> Any:
    return type("Made", (), {"name": name, **{hook: staticmethod(call) for hook, call in hooks.items()}})()


def hooks(*plugins: Any, weights: dict[str, int] | None = None) -> Hooks:
    return Hooks([[Configured(one, (weights or {}).get(one.name, 1))] for one in plugins])


STATE: Any = object()
VIEW: Any = type("View", (), {"open_slots": np.zeros(3, dtype=np.int64)})()
PODS = tuple(Pod(uid=uid, namespace="ns", name=uid, shape="x") for uid in ("a", "b", "c"))


def test_keys_of_all_tiers_are_joined_in_order() -> None:
    one = plugin("one", order_groups=lambda state, view: (3,))
    two = plugin("two", order_groups=lambda state, view: ("x", 1.5))
    assert [value for _, value in hooks(one, two).order_groups(STATE, VIEW)] == [3, "x", 1.5]


def test_keys_that_mix_text_and_numbers_still_compare() -> None:
    answers = iter([("text",), (5,)])
    both = hooks(plugin("odd", order_groups=lambda state, view: next(answers)))
    first, second = both.order_groups(STATE, VIEW), both.order_groups(STATE, VIEW)
    assert sorted([first, second]) == [second, first]


def test_the_first_verdict_wins_and_no_verdict_means_yes() -> None:
    no = verdict(Code.QUEUE_CLOSED, queue="q")
    silent = plugin("silent", admits=lambda state, view: None)
    assert hooks(silent).admits(STATE, VIEW) is None
    assert hooks(silent, plugin("no", admits=lambda state, view: no)).admits(STATE, VIEW) is no
    assert hooks().allows(STATE, (), VIEW) is None


def test_the_first_misfit_wins() -> None:
    cold = plugin("cold", fits=lambda shape, node_class: Misfit("node(s) were cold"))
    wet = plugin("wet", fits=lambda shape, node_class: Misfit("node(s) were wet"))
    assert hooks(cold, wet).fits(shape(), NodeClass()) == Misfit("node(s) were cold")


def test_scores_are_summed_with_their_weights() -> None:
    one = plugin("one", scores=lambda shape, node_class: 10, scores_nodes=lambda shape, view: np.array([1, 2, 3]))
    two = plugin("two", scores=lambda shape, node_class: 7, scores_nodes=lambda shape, view: np.array([1, 0, 0]))
    both = hooks(one, two, weights={"one": 2, "two": 3})
    assert both.scores(shape(), NodeClass()) == 41
    dynamic = both.scores_nodes(shape(), VIEW)
    assert dynamic is not None
    assert dynamic.tolist() == [5, 4, 6]


def test_a_plugin_with_weight_zero_is_not_asked_for_scores() -> None:
    def explode(*args: object) -> int:
        raise AssertionError("asked")

    off = plugin("off", scores=explode, scores_nodes=explode)
    assert hooks(off, weights={"off": 0}).scores(shape(), NodeClass()) == 0
    assert hooks(off, weights={"off": 0}).scores_nodes(shape(), VIEW) is None


def test_opinions_on_victims_are_intersected() -> None:
    no_opinion = plugin("none", may_evict=lambda preemptor, victims: NoOpinion())
    ab = plugin("ab", may_evict=lambda preemptor, victims: Only(frozenset("ab")))
    bc = plugin("bc", may_evict=lambda preemptor, victims: Only(frozenset("bc")))
    assert hooks(no_opinion).may_evict(STATE, PODS) == NoOpinion()
    assert hooks(no_opinion, ab).may_evict(STATE, PODS) == Only(frozenset("ab"))
    assert hooks(ab, bc).may_evict(STATE, PODS) == Only(frozenset("b"))


def test_nobody_may_be_evicted_is_not_the_same_as_no_opinion() -> None:
    nobody = plugin("nobody", may_evict=lambda preemptor, victims: Only())
    ab = plugin("ab", may_evict=lambda preemptor, victims: Only(frozenset("ab")))
    assert hooks(nobody, ab).may_evict(STATE, PODS) == hooks(ab, nobody).may_evict(STATE, PODS) == Only()


def test_a_plugin_cannot_widen_the_set_of_victims() -> None:
    wide = plugin("wide", may_evict=lambda preemptor, victims: Only(frozenset({"a", "somebody-else"})))
    assert hooks(wide).may_evict(STATE, PODS) == Only(frozenset("a"))


def test_a_hook_that_raises_says_which_plugin_and_what() -> None:
    def broken(state: object, view: object) -> None:
        raise KeyError("boom")

    with pytest.raises(HookRaised, match="plugin broken raised in admits: KeyError") as raised:
        hooks(plugin("broken", admits=broken)).admits(STATE, VIEW)
    assert (raised.value.plugin, raised.value.hook) == ("broken", "admits")


@pytest.mark.parametrize(
    ("hook", "answer", "args"),
    [
        ("admits", False, (STATE, VIEW)),
        ("order_groups", [1], (STATE, VIEW)),
        ("order_groups", (None,), (STATE, VIEW)),
        ("fits", "no", (shape(), NodeClass())),
        ("scores_nodes", np.zeros(2), (shape(), VIEW)),
        ("wishes", None, (STATE, VIEW)),
        ("may_evict", frozenset("a"), (STATE, PODS)),
    ],
)
def test_an_answer_of_the_wrong_type_is_the_plugins_fault(hook: str, answer: object, args: tuple[Any, ...]) -> None:
    with pytest.raises(HookRaised, match="instead of"):
        getattr(hooks(plugin("odd", **{hook: lambda *_: answer})), hook)(*args)


def test_every_built_in_plugin_can_be_made_without_arguments() -> None:
    registry = built_in()
    tiers = registry.build((tuple(PluginConfig(name) for name in registry.names()),))
    assert [one.plugin.name for one in tiers[0]] == list(registry.names())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PluginConfig("binpak"), r'tiers\[0\]\.plugins\[0\]\.name: unknown plugin "binpak"; did you mean "binpack"\?'),
        (PluginConfig("nodeorder", arguments={"taint": 1}), r'arguments\.taint: unknown .* did you mean "taints"'),
        (PluginConfig("nodeorder", arguments={"taints": "3"}), r"taints: must be an integer from 0 to 1000, is '3'"),
        (PluginConfig("nodeorder", arguments={"taints": True}), r"arguments\.taints: must be an integer"),
        (PluginConfig("nodeorder", arguments={"leastAllocated": 1, "mostAllocated": 1}), "cannot be used together"),
        (PluginConfig("binpack", arguments={"gpus": 10}), r'arguments\.gpus: unknown argument "gpus"'),
        (PluginConfig("binpack", arguments={"x/gpu": -1}), r"arguments\.x/gpu: must be an integer from 0"),
        (PluginConfig("priority", arguments={"x": 1}), "it takes none"),
        (PluginConfig("conformance", arguments={"namespaces": "kube-system"}), "must be a list of non-empty strings"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_used_names_the_path(config: PluginConfig, message: str) -> None:
    with pytest.raises(BadPlugin, match=message):
        built_in().build(((config,),))


def test_a_factory_that_raises_or_makes_nothing_useful_is_named() -> None:
    def broken(arguments: Arguments) -> Any:
        raise OSError("no disk")

    registry = Registry({"broken": broken, "empty": lambda arguments: plugin("empty")})
    with pytest.raises(BadPlugin, match='plugin "broken" cannot be made: OSError'):
        registry.build(((PluginConfig("broken"),),))
    with pytest.raises(BadPlugin, match="has none of the hooks"):
        registry.build(((PluginConfig("empty"),),))
