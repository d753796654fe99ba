"""The policy pack: `pulumi preview --policy-pack policy`. Its rules are in rules.py."""

from collections.abc import Mapping
from typing import Any

from pulumi_policy import (  # pyright: ignore[reportMissingImports] it is in policy/.venv
    EnforcementLevel,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from rules import RULES, Rule, is_component, sizing, unguarded

components: dict[str, tuple[str, str, dict[str, Any]]] = {}
"""The components seen so far, by URN. A stack policy is shown outputs, and a component's settings are inputs."""


def remember(args: ResourceValidationArgs, _: ReportViolation) -> None:
    if is_component(args.resource_type):
        components[args.urn] = (args.resource_type, args.name, plain(args.props))


def plain(value: Any) -> Any:
    """A value without the wrappers that watch for unknowns; the engine sends every number as a float."""
    if isinstance(value, Mapping):
        return {key: plain(value[key]) for key in value}
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def on_resource(rule: Rule) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if args.resource_type in rule.types:
            for message in rule.check(plain(args.props)):
                report(message, None)

    return ResourceValidationPolicy(rule.name, rule.description, validate)


def size(error: bool) -> StackValidationPolicy:
    def validate(_: StackValidationArgs, report: ReportViolation) -> None:
        for finding in sizing(components.values()):
            if finding.error is error:
                report(str(finding), None)

    what = "runs: memory, parallelism, GPUs of the pools" if error else "is worth a look: margins, failures, prices"
    level = EnforcementLevel.MANDATORY if error else EnforcementLevel.ADVISORY
    return StackValidationPolicy(
        f"sizing{'' if error else '-advice'}", f"What the platform asks {what}.", validate, level
    )


def guard(args: StackValidationArgs, report: ReportViolation) -> None:
    def sources(resource: PolicyResource) -> list[str]:
        return [other.urn for other in resource.property_dependencies.get("bucket", [])]

    for urn, message in unguarded((item.resource_type, item.urn, sources(item)) for item in args.resources):
        report(message, urn)


PolicyPack(
    "eks-llm",
    [
        ResourceValidationPolicy("components", "Takes note of the components.", remember, EnforcementLevel.ADVISORY),
        *map(on_resource, RULES),
        StackValidationPolicy("guarded-buckets", "Every bucket has a policy and blocks public access.", guard),
        size(error=True),
        size(error=False),
    ],
    enforcement_level=EnforcementLevel.MANDATORY,
)
