"""Rules on names across the sections of a stack file: no object of a stack has the name of another."""

from collections.abc import Iterator

from ..core.problems import Problem
from ..core.reserved import MADE_IN_EVERY_NAMESPACE, namespace_problem
from ..operators import gpu_operator, keda
from ..serving.workload import pods_name
from .sections import Sections


def services(sections: Sections, _region: str) -> Iterator[Problem]:
    """Names of a service's objects: most are its own, and the headless Service's ends in -pods."""
    for name in sections.services:
        if ("ServiceAccount", name) in MADE_IN_EVERY_NAMESPACE:
            yield Problem(
                f"platform.services.{name}",
                f"its ServiceAccount would be called {name!r} too, and Kubernetes makes one of that name in every "
                "namespace itself; choose another name",
            )
        if (other := pods_name(name)) in sections.services:
            yield Problem(
                f"platform.services.{other}",
                f"its Service and the headless Service of services.{name} have one name, {other!r}; rename "
                "one of the two",
            )


def namespaces(sections: Sections, _region: str) -> Iterator[Problem]:
    """The namespace that is made, labelled and deleted with the stack belongs to nobody else."""
    given = sections.existing_cluster
    if given is None:
        return
    path = "platform.existingCluster.namespace"
    if problem := namespace_problem(given.namespace):
        yield Problem(path, f"{given.namespace!r}: {problem}")
    operators = {
        given.monitoring_namespace: "monitoringNamespace",
        keda.NAMESPACE: "KEDA",
        gpu_operator.NAMESPACE: "the GPU operator",
    }
    if given.namespace in operators:
        yield Problem(
            path,
            f"{given.namespace!r} is the namespace of {operators[given.namespace]}; the stack makes one for the "
            "services and deletes it with all that is in it: choose another, such as inference",
        )


RULES = [services, namespaces]
