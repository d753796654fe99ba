"""What all components share: children by name, and the argument `customize`, which changes them from outside."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar, cast

import pulumi

from .customize import Customize, Place, merged, plain_key, problems
from .model import Model
from .names import checked
from .problems import InvalidArgs, Problem, nearest

M = TypeVar("M", bound=Model)


NO_KUBERNETES = (
    "no Kubernetes provider is given, so the objects would go to whatever cluster kubectl points to; pass "
    "pulumi.ResourceOptions(providers=[…]) with the provider of the cluster, such as `kubernetes` of a Cluster or "
    "ExistingCluster, or a parent that has it"
)


def _kubernetes_provider(opts: pulumi.ResourceOptions | None) -> bool:
    """Whether the options, or the parent that they name, hold an explicit Kubernetes provider."""
    if opts is None:
        return False
    several = opts.providers.values() if isinstance(opts.providers, Mapping) else opts.providers or []
    given = {provider.package for provider in (opts.provider, *several) if provider}
    return "kubernetes" in given or bool(opts.parent and opts.parent.get_provider("kubernetes:core/v1:Pod"))


@dataclass(frozen=True)
class Child:
    """A child resource of a component, or several of a kind, as an attribute holds them: one, a mapping, or None."""

    type: type[pulumi.Resource]
    name: str
    """Name of the resource behind the component's own and a hyphen; `*` stands for what tells several apart."""
    what: str
    """What it is for, in a line of the reference."""
    owned: Mapping[str, str] = field(default_factory=dict[str, str])
    """Properties that `customize` may not change, and why."""


class Component(pulumi.ComponentResource):
    """A component whose children are attributes of the same names as in `CHILDREN`."""

    # Without an annotation: Pulumi's analyzer takes annotated attributes for outputs.
    CHILDREN = cast("Mapping[str, Child]", {})

    @classmethod
    def checked(cls, model: type[M], args: Mapping[str, Any], name: str, longest_suffix: str = "") -> M:
        """The arguments as a checked `model`; raises `InvalidArgs` that names every bad key, those of `customize` too.

        `longest_suffix`: see `core.names.name_problem`.
        """
        found = list(cls._customize_problems(args.get("customize") if isinstance(args, Mapping) else None))
        try:
            result = checked(model, args, cls.__name__, name, longest_suffix)
        except InvalidArgs as error:
            raise InvalidArgs(f'{cls.__name__} "{name}"', [*error.problems, *found]) from None
        if found:
            raise InvalidArgs(f'{cls.__name__} "{name}"', found)
        return result

    def __init__(
        self,
        token: str,
        name: str,
        inputs: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None,
        customize: Customize,
    ) -> None:
        """`inputs`: what the engine is shown of the component. `customize`: as `checked`."""
        if self.makes_cluster_objects() and not _kubernetes_provider(opts):
            raise InvalidArgs(f'{type(self).__name__} "{name}"', [Problem("opts", NO_KUBERNETES)])
        self._patches = {self._child(key): patch for key, patch in customize.items()}
        # Transformations run in the program, so that a plan shows what they do; `transforms` would ask the engine.
        own = pulumi.ResourceOptions(transformations=[self._customized] if customize else [])
        self._component = name
        super().__init__(token, name, dict(inputs), pulumi.ResourceOptions.merge(opts, own))

    @classmethod
    def makes_cluster_objects(cls) -> bool:
        """Whether children live in a Kubernetes cluster, so that somebody has to say in which."""
        types = [child.type for child in cls.CHILDREN.values()]
        return any(type_.__module__.startswith("pulumi_kubernetes.") for type_ in types
                   if not issubclass(type_, pulumi.ProviderResource))  # fmt: skip

    @classmethod
    def child_of(cls, component: str, resource: pulumi.Resource, name: str) -> str | None:
        """The attribute that holds a resource of this name, made by the component called `component`."""
        suffix = name.removeprefix(f"{component}-")
        fit = {
            key: len(child.name)
            for key, child in cls.CHILDREN.items()
            if isinstance(resource, child.type) and fnmatchcase(suffix, child.name)
        }
        return max(fit, key=lambda key: fit[key], default=None)  # the longest pattern says most

    @classmethod
    def _child(cls, key: str) -> str:
        return next((child for child in cls.CHILDREN if plain_key(child) == plain_key(key)), "")

    @classmethod
    def _customize_problems(cls, customize: Any) -> Iterator[Problem]:
        if not isinstance(customize, Mapping):  # the model says so
            return
        for key, patch in cast(Mapping[Any, Any], customize).items():
            child = cls.CHILDREN.get(cls._child(str(key)))
            if child is None:
                yield Problem(f"customize.{key}", f"no child of {cls.__name__}{nearest(str(key), list(cls.CHILDREN))}")
            elif isinstance(patch, Mapping):
                yield from problems(patch, Place.of(child.type), f"customize.{key}", child.owned)

    def _customized(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.resource is self:
            return None
        patch = self._patches.get(self.child_of(self._component, args.resource, args.name) or "")
        if patch is None:
            return None
        return pulumi.ResourceTransformationResult(
            merged(dict(args.props), patch, Place.of(type(args.resource))), args.opts
        )
