"""Kinds that a scheduler does not look at: Services, ConfigMaps, Secrets, LimitRanges.

Decided here: the few defaults and checks without which kubectl and manifests would not work. It must not know pods.
Invariant: as in strategies.py, what these functions accept may be stored.
"""

from __future__ import annotations

import base64
import re

from scheduler.playground.errors import Cause, Obj, bad_request, field_invalid
from scheduler.playground.quantities import canonicalise
from scheduler.playground.storage import Store

_DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_DATA_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def spec_object(obj: Obj) -> Obj:
    """Return spec, which must be an object."""
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    if not isinstance(spec, dict):
        raise bad_request("json: cannot unmarshal spec: an object is expected")
    return spec


def create_service(store: Store, one: Obj) -> list[Cause]:
    """Give a Service its defaults and, unless it is headless, an address."""
    spec = spec_object(one)
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] == "ClusterIP" and "clusterIP" not in spec:
        seed = int(one["metadata"]["uid"].replace("-", "")[:6], 16)
        spec["clusterIP"] = f"10.{96 + seed % 16}.{seed // 16 % 256}.{seed // 4096 % 254 + 1}"
    if spec["type"] != "ExternalName":
        spec.setdefault("clusterIPs", [spec.get("clusterIP", "None")])
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    one["status"] = {"loadBalancer": {}}
    return []


def complete_secret(store: Store, one: Obj) -> list[Cause]:
    """Turn stringData into data and check the keys."""
    one.setdefault("type", "Opaque")
    for key, text in (one.pop("stringData", None) or {}).items():
        one.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    return data_keys(one)


def data_keys(one: Obj) -> list[Cause]:
    """Return the errors in the keys of a ConfigMap or Secret."""
    return [
        field_invalid(f"{part}[{key}]", key, _DATA_KEY_TEXT)
        for part in ("data", "binaryData")
        for key in one.get(part) or {}
        if not _DATA_KEY.match(key)
    ]


def create_limit_range(store: Store, one: Obj) -> list[Cause]:
    """Put the amounts of a LimitRange into canonical form."""
    for row in spec_object(one).get("limits") or ():
        for part in ("max", "min", "default", "defaultRequest"):
            canonicalise("LimitRange", "v1", row.get(part))
    return []
