"""The PrometheusRule of the platform: its alerts."""

import datetime
from collections.abc import Mapping
from typing import Any

from .alerts import of_platform
from .rules import RUNBOOKS, group, prometheus_rule

NAME = "eks-llm-platform"


def platform_rules(
    namespace: str, *, capacity_blocks: Mapping[str, datetime.datetime], runbooks: str = RUNBOOKS
) -> dict[str, Any]:
    """The object in `namespace`. `capacity_blocks`: pools and when their capacity block ends.

    Its alerts carry that namespace, so that an AlertmanagerConfig there, which sees its own namespace's alerts only,
    can route them all, those of missing series included.
    """
    rules = (alert.rule({"namespace": namespace}, runbooks) for alert in of_platform(capacity_blocks))
    return prometheus_rule({"name": NAME, "namespace": namespace}, group(NAME, rules))
