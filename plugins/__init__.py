"""The policies that come with Muster, one file each. They use what third-party plugins use: framework and model."""

from __future__ import annotations

from plugins.age import Age
from plugins.binpack import BinPack
from plugins.conformance import Conformance
from plugins.drf import DominantResourceFairness
from plugins.fragmentation import Fragmentation
from plugins.gang import Gang
from plugins.hostports import HostPorts
from plugins.imagelocality import ImageLocality
from plugins.interpod import InterPod
from plugins.nodeorder import node_order
from plugins.predicates import Predicates
from plugins.priority import Priority
from plugins.queues import Queues
from plugins.spread import Spread
from plugins.spreading import spreading
from plugins.topology import Topology
from plugins.volumes import Volumes
from scheduler.framework.registry import PluginFactory, Registry

_BUILT_IN: tuple[tuple[str, PluginFactory], ...] = (
    ("age", Age),
    ("binpack", BinPack),
    ("conformance", Conformance),
    ("drf", DominantResourceFairness),
    ("fragmentation", Fragmentation),
    ("gang", Gang),
    ("hostports", HostPorts),
    ("imagelocality", ImageLocality),
    ("interpod", InterPod),
    ("nodeorder", node_order),
    ("predicates", Predicates),
    ("priority", Priority),
    ("queues", Queues),
    ("spread", Spread),
    ("spreading", spreading),
    ("topology", Topology),
    ("volumes", Volumes),
)


def built_in() -> Registry:
    """Return the registry of these plugins; `with_entry_points()` adds those of other distributions."""
    return Registry(dict(_BUILT_IN))
