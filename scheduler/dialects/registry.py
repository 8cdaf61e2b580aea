"""All dialects, in the order in which their references win (see `membership`)."""

from __future__ import annotations

from types import MappingProxyType

from scheduler.dialects.base import Dialect
from scheduler.dialects.coscheduling import CoschedulingDialect
from scheduler.dialects.kai import KaiDialect
from scheduler.dialects.kueue import KueueDialect
from scheduler.dialects.muster import MusterDialect
from scheduler.dialects.native import NativeDialect
from scheduler.dialects.volcano import VolcanoDialect

DIALECTS: tuple[Dialect, ...] = (
    MusterDialect(),
    NativeDialect(),
    VolcanoDialect(),
    CoschedulingDialect(),
    KaiDialect(),
    KueueDialect(),
)
BY_NAME = MappingProxyType({dialect.name: dialect for dialect in DIALECTS})
