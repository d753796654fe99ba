"""Options of child resources that a caller's `protect` shall not reach."""

from collections.abc import Sequence
from typing import Any

import pulumi


def expendable(
    parent: pulumi.Resource, depends_on: Sequence[pulumi.Resource] = (), **more: Any
) -> pulumi.ResourceOptions:
    """Options of a child that can be made again without loss, such as a role, a route or an access entry.

    A child inherits `protect` of its component, and then nothing could be removed from a protected stack: no service,
    no administrator, no kind of log. What cannot be made again takes plain `ResourceOptions(parent=self)`.
    """
    return pulumi.ResourceOptions(parent=parent, protect=False, depends_on=list(depends_on), **more)
