"""The pages that are made from the code are those that it makes now, and every field says what it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy.reference import KINDS, MADE, PAGES, ROOT, fields

_KNOWN = ("conditions[].", "matchExpressions[].", "spec.gangs[].group.", "failures[].")
"""Parts that are alike in all of Kubernetes, and references, whose fields say themselves what they are."""


@pytest.mark.parametrize("page", MADE)
def test_the_page_is_up_to_date(page: str):
    assert (PAGES / page).read_text() == MADE[page](), "run `python -m tests.deploy.reference`"


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_explain_has_something_to_say_of_every_field(kind: str):
    crd: dict[str, Any] = yaml.safe_load((ROOT / "config" / "crd" / f"{kind}.yaml").read_text())
    found = dict(fields(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    assert len(found) > 10
    silent = [path for path, field in found.items() if not field.get("description")]
    assert [path for path in silent if not any(part in path for part in _KNOWN)] == []
