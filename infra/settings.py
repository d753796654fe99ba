"""The stack file as typed settings: what `Pulumi.<stack>.yaml` may say, and everything that is wrong with it at once.

Each section is the settings model of the component that it configures, so a setting is defined in one place. This
module adds what only the whole stack can know: that names meet, that ranges do not overlap, that GPUs suffice.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast, get_args, get_origin

import pulumi
import pulumi_aws as aws
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret
from pydantic import BeforeValidator, Strict, TypeAdapter, ValidationError, field_validator

import kubeconfig
from eks_llm.aws.cluster import ClusterSettings
from eks_llm.aws.network import NetworkSettings
from eks_llm.aws.node_pool import PoolSettings
from eks_llm.aws.nodes import release_problem
from eks_llm.aws.weights import WeightsSettings
from eks_llm.catalog.eks import AmiType
from eks_llm.catalog.images import IMAGES, driver_problem
from eks_llm.catalog.regions import OTHER_PARTITIONS, REGIONS
from eks_llm.core.addresses import Arn
from eks_llm.core.model import Model
from eks_llm.core.names import Name, Tags, name_problem
from eks_llm.core.problems import InvalidArgs, Problem, nearest, problems, shown, unshown
from eks_llm.operators.monitoring import MonitoringSettings
from eks_llm.preflight import check
from eks_llm.serving.existing_cluster import ExistingClusterSettings, ExistingPool
from eks_llm.serving.service import ServiceSettings
from eks_llm.sizing import own_prices, shape
from eks_llm.sizing.report import Report

ROOT = Path(__file__).parents[1]
"""The repository: paths in a stack file start here."""

GRAFANA_SECRET = "grafanaAdminPassword"  # noqa: S105 the name of a key
"""Config key of the password of Grafana's `admin` user."""

NAMESPACE = "inference"
"""Where services run on a new cluster."""


LONGEST_ROLE = "-aws-ebs-csi-driver"
"""What the longest name among the cluster's IAM roles appends to the cluster's."""


def _key_name(value: Any) -> Any:
    """Refuses what is no name of a config key, and then does not repeat it: it may be the API key itself."""
    if value is None:
        return value
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", value):
        raise unshown(
            "not the name of a config key, such as inferenceApiKey (up to 40 letters, digits, '-' and '_'); "
            "the API key itself is set with: pulumi config set --secret <name>"
        )
    if value in ("platform", GRAFANA_SECRET):
        raise ValueError("this config key holds something else; choose a name of its own, such as inferenceApiKey")
    return value


def _account_id(value: Any) -> str:
    """Twelve digits, which YAML reads as a number where they stand without quotes."""
    if not re.fullmatch(r"\d{12}", str(value)):
        raise ValueError('not an AWS account id such as "111122223333"')
    return str(value)


class AssumeRole(Model):
    """A role that the AWS provider takes on; the fields of its `assumeRoles` that a deployment needs."""

    role_arn: Arn
    external_id: str | None = None
    session_name: str | None = None


class AwsAccess(Model):
    """How the AWS provider signs in, beside the region: what the stack file says under `aws:…`."""

    profile: str | None = None
    assume_roles: list[AssumeRole] = []
    allowed_account_ids: list[Annotated[str, BeforeValidator(_account_id)]] = []

    def provider_args(self) -> dict[str, Any]:
        """Arguments of the AWS provider. A plain mapping as a role would reach it with snake_case keys."""
        roles = [aws.ProviderAssumeRoleArgs(**role.args()) for role in self.assume_roles]
        return {**self.args(), "assume_roles": roles or None}


class StackService(ServiceSettings):
    """What a stack file says about a service; unlike the component, it can read the shape from a `config.json`."""

    _named = field_validator("api_key_secret", mode="before")(_key_name)

    @field_validator("model_shape", mode="before")
    @classmethod
    def _from_config_json(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "configJson" not in value:
            return value
        path = value["configJson"]
        if len(value) > 1:
            raise ValueError("configJson stands alone; the other keys give a shape by hand")
        if not isinstance(path, str) or not (ROOT / path).resolve().is_relative_to(ROOT):
            raise ValueError(f"configJson: {path!r} is not a path below the repository's root, {ROOT.name}/")
        try:
            return shape.from_config((ROOT / path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"configJson: {path} is not a text file in UTF-8") from None
        except OSError as error:
            why = f"{error.strerror}; paths start at the repository's root"
            raise ValueError(f"configJson: {path} cannot be read ({why})") from None
        except ValueError as error:
            raise ValueError(f"configJson: {path}: {str(error).removeprefix('config.json: ')}") from None


class ClusterAccess(ExistingClusterSettings):
    """A cluster that somebody else runs, with its operators: see docs/existing-cluster.md."""

    kubeconfig: str
    """Path of a kubeconfig file, absolute or from the repository's root. No other file is read, whatever `KUBECONFIG`
    says. A preview goes on without the file, and then knows nothing of the cluster."""
    context: str | None = None
    """Context of that file. Default: its current one."""

    @field_validator("kubeconfig")
    @classmethod
    def _below_the_root_or_absolute(cls, value: str) -> str:
        if value.startswith("~"):
            raise ValueError(
                "the home folder is not filled in; write the whole path, or one from the repository's root"
            )
        if not Path(value).is_absolute() and not (ROOT / value).resolve().is_relative_to(ROOT):
            raise ValueError(f"neither an absolute path nor one below the repository's root, {ROOT.name}/")
        return value

    @property
    def identity(self) -> str:
        """What stands for the cluster in this stack: the file as it is written, and the context."""
        return f"{self.kubeconfig}#{self.context}" if self.context else self.kubeconfig


class ExistingPlatform(Model):
    """`<project>:platform` of a stack whose services run in a cluster that exists."""

    existing_cluster: ClusterAccess
    """A cluster that exists, in place of `network`, `cluster`, `weights` and `monitoring`."""
    gpu_pools: dict[Name, ExistingPool]
    """Groups of GPU nodes that the cluster has, at least one, by their label `eks-llm.dev/pool`."""
    services: dict[Name, StackService] = {}
    """Models that are served."""

    @property
    def secret_keys(self) -> list[str]:
        """Config keys that have to be set with `pulumi config set --secret`."""
        return _api_keys(self.services)


class EksPlatform(Model):
    """`<project>:platform`, the one object that describes a stack."""

    network: NetworkSettings
    """The VPC."""
    cluster: ClusterSettings
    """The EKS control plane, who may use it, and its system nodes."""
    weights: WeightsSettings
    """The S3 bucket of the model files."""
    gpu_pools: dict[Name, PoolSettings]
    """Groups of GPU nodes, at least one."""
    services: dict[Name, StackService] = {}
    """Models that are served."""
    monitoring: MonitoringSettings = MonitoringSettings()
    """Prometheus and Grafana."""
    tags: Tags = {}
    """AWS tags of every resource. A change rolls every GPU node, one after the other: instances carry them too."""
    protect: Annotated[bool, Strict()] = False
    """Refuse to delete or replace the network, the cluster and the bucket. Pulumi meets that refusal only after it has
    begun: a `pulumi destroy` still takes the services, operators and node pools away first. Default false."""

    @property
    def secret_keys(self) -> list[str]:
        """Config keys that have to be set with `pulumi config set --secret`."""
        return sorted({GRAFANA_SECRET, *_api_keys(self.services)})

    @property
    def ami_type(self) -> AmiType:
        """The node image of the GPU pools; `load` has checked that they agree."""
        return next(iter(self.gpu_pools.values())).ami_type


Platform = EksPlatform | ExistingPlatform
"""The two forms of a stack: it makes its cluster, or it uses one."""


def _api_keys(services: Mapping[str, StackService]) -> list[str]:
    return sorted({service.api_key_secret for service in services.values() if service.api_key_secret})


@dataclass(frozen=True)
class Settings:
    """A stack that can be built."""

    platform: Platform
    region: str
    """Empty only beside an existing cluster, which needs none."""
    access: AwsAccess
    config: pulumi.Config
    report: Report
    """What the stack needs and costs."""
    kubeconfig: str | None = None
    """Of the existing cluster; None: there is none, or (in a preview) its file is missing."""

    def secret(self, key: str) -> pulumi.Output[str]:
        """The secret `key` of the stack. `load` has refused an update without it; a preview goes on with a stand-in."""
        return self.config.get_secret(key) or pulumi.Output.secret("not set")


def load(config: pulumi.Config, stack: str) -> Settings:
    """The settings of `stack`; what is doubtful is logged as a warning.

    Raises `InvalidArgs` with every problem: file, key path, bad value, what would be right.
    """
    keys = {**get_config_env(), **CONFIG.get()}
    if not keys:
        needed = f"it needs aws:region and {config.name}:platform below `config:`, see docs/reference/stack-file.md"
        raise InvalidArgs(f"Pulumi.{stack}.yaml", [Problem("", f"the file is empty or has no configuration; {needed}")])
    found: list[Problem] = []
    raw = _parsed(config.get("platform"))
    form = _form(raw)
    region, access = _region(keys.get("aws:region", ""), form, found), _access(keys, form, found)
    sections, bad = _sections(raw, form)
    found += bad
    access_file, missing = _kubeconfig(sections, found)
    found += _cluster_name(f"{config.name}-{stack}")
    found += [problem for rule in RULES for problem in rule(sections, region)]
    report, bad = _sized(sections, region)
    found += bad
    found += [Problem(_full(finding.path), finding.message) for finding in report.errors]
    found += _own_keys(config, keys, sections)
    if found:
        raise InvalidArgs(f"Pulumi.{stack}.yaml", sorted(dict.fromkeys(found), key=lambda problem: problem.path))

    platform = form.model_construct(**vars(sections))
    unset = [f"{config.name}:{key}: not set; run: pulumi config set --secret {key}" for key in platform.secret_keys
             if config.get(key) is None]  # fmt: skip
    if unset and not pulumi.runtime.is_dry_run():
        raise InvalidArgs(f"Pulumi.{stack}.yaml", [Problem("", text) for text in unset])
    sized = [f"{_full(finding.path)}: {finding.message}" for finding in report.warnings]
    own = {f"{config.name}:{key}" for key in ("platform", *platform.secret_keys)}
    unused = [f"{key}: no service names this secret" for key in keys.keys() - own if key.startswith(f"{config.name}:")]
    for warning in (*missing, *unset, *unused, *_warnings(platform, access), *sized):
        pulumi.log.warn(warning)
    return Settings(platform, region, access, config, report, access_file)


# Reading ------------------------------------------------------------------------------------------------------------


def _parsed(text: str | None) -> Any:
    """A config value that may be structured: Pulumi hands objects and lists over as JSON."""
    try:
        return json.loads(text) if text else None
    except json.JSONDecodeError:
        return text


def _form(raw: Any) -> type[EksPlatform] | type[ExistingPlatform]:
    """Which of the two forms a stack file means."""
    existing = isinstance(raw, dict) and cast(dict[str, Any], raw).get("existingCluster") is not None
    return ExistingPlatform if existing else EksPlatform


def _region(text: str, form: type[Model], found: list[Problem]) -> str:
    """`aws:region`; empty where it is none, so that no rule compares with it."""
    if text in REGIONS or (not text and form is ExistingPlatform):
        return text
    if partition := OTHER_PARTITIONS.get(text):
        problem = f"{text!r} is in the partition {partition}, and the components write ARNs of the partition aws only"
    else:
        hint = nearest(text, list(REGIONS))
        problem = f"{shown(text)} is not an AWS region{hint if hint.startswith(';') else ' such as us-west-2'}"
    found.append(Problem("aws:region", problem))
    return ""


def _access(keys: Mapping[str, str], form: type[Model], found: list[Problem]) -> AwsAccess:
    """The sign-in. The AWS provider is an explicit one, so no other `aws:` key would reach it."""
    given = {key.removeprefix("aws:"): text for key, text in keys.items() if key.startswith("aws:")}
    if form is ExistingPlatform:
        found += [Problem(f"aws:{key}", f"{NOT_BESIDE}; remove it") for key in given if key != "region"]
        return AwsAccess()
    known = ["region", *(field.alias or name for name, field in AwsAccess.model_fields.items())]
    for key in given.keys() - set(known):
        hint = "; use platform.tags" if key == "defaultTags" else nearest(key, known)
        found.append(Problem(f"aws:{key}", f"this program does not pass it on, so it would be ignored{hint}"))
    used = {key: text if key == "profile" else _parsed(text) for key, text in given.items() if key in known[1:]}
    try:
        return AwsAccess.model_validate(used)
    except ValidationError as error:
        found += [Problem(f"aws:{problem.path}", problem.message) for problem in problems(error, AwsAccess)]
        return AwsAccess()


def _sections(raw: Any, form: type[Model]) -> tuple[SimpleNamespace, list[Problem]]:
    """Each section on its own, so that an error in one does not hide the errors of another.

    A section with nothing below it, as when all services are commented out, is as good as absent.

    A section (or pool, or service) that is wrong is absent from the result. `pool_names` and `secret_names` are those
    that the file holds, also in what is wrong: a rule must not call a name missing that only stands in a broken part.
    """
    sections = SimpleNamespace(pool_names=None, secret_names=set())
    if not isinstance(raw, dict) or not raw:
        what = "is missing or empty" if not raw else f"is {shown(raw)}, not a mapping"
        return sections, [Problem("platform", f"{what}; it describes the stack, see docs/reference/stack-file.md")]
    fields = {field.alias or name: (name, field) for name, field in form.model_fields.items()}
    others = {field.alias or name for model in get_args(Platform) for name, field in model.model_fields.items()}
    raw = {key: value for key, value in raw.items() if value is not None or key not in others}
    found = [Problem(f"platform.{key}", _unknown_section(key, fields, others)) for key in raw if key not in fields]
    for key, (name, field) in fields.items():
        path = f"platform.{key}"
        if key not in raw:
            if field.is_required():
                instead = "; or existingCluster, for a cluster that exists" if key == "cluster" else ""
                found.append(Problem(path, f"required, but missing{instead}"))
            else:
                setattr(sections, name, field.get_default(call_default_factory=True))
        elif get_origin(field.annotation) is dict and get_args(field.annotation)[1] is not str:
            setattr(sections, name, _items(raw[key], get_args(field.annotation)[1], path, found))
        else:
            type_: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            value, ok = _checked(type_, raw[key], path, found)
            if ok:
                setattr(sections, name, value)
    if isinstance(pools := raw.get("gpuPools"), dict):
        sections.pool_names = list(pools)
    services = raw["services"].values() if isinstance(raw.get("services"), dict) else ()
    sections.secret_names = {str(service.get("apiKeySecret")) for service in services if isinstance(service, dict)}
    return sections, found


NOT_BESIDE = "beside existingCluster nothing is made in AWS"
"""Why a key has nothing to describe in a stack for a cluster that exists."""


def _unknown_section(key: str, fields: Iterable[str], others: Iterable[str]) -> str:
    if key in others:  # the form of a stack is the existing cluster's as soon as it names one
        return f"{NOT_BESIDE}, so this describes nothing; remove it, or remove existingCluster to make a new cluster"
    return f"unknown key{nearest(key, [*fields, 'existingCluster'])}"


def _items(raw: Any, model: type[Model], path: str, found: list[Problem]) -> dict[str, Any]:
    """The named members of a section such as `services`, without those that are wrong."""
    if not isinstance(raw, dict):
        found.append(Problem(path, f"{shown(raw)} is not a mapping from names to settings"))
        return {}
    members: dict[str, Any] = {}
    for name, value in raw.items():
        _, name_ok = _checked(Name, name, f"{path}.{name}", found)
        member, ok = _checked(model, value, f"{path}.{name}", found)
        if ok and name_ok:
            members[name] = member
    return members


def _checked(type_: Any, value: Any, path: str, found: list[Problem]) -> tuple[Any, bool]:
    try:
        return TypeAdapter(type_).validate_python(value), True
    except ValidationError as error:
        for problem in problems(error, type_):
            inner = problem.path if problem.path.startswith("[") or not problem.path else f".{problem.path}"
            found.append(Problem(f"{path}{inner}", problem.message))
        return None, False


def _kubeconfig(sections: SimpleNamespace, found: list[Problem]) -> tuple[str | None, list[str]]:
    """The existing cluster's kubeconfig, and what to warn of."""
    access: ClusterAccess | None = getattr(sections, "existing_cluster", None)
    if access is None:
        return None, []
    path, why = "platform.existingCluster.kubeconfig", ""
    try:
        return kubeconfig.read(ROOT / access.kubeconfig, access.context), []
    except FileNotFoundError:
        why = f"{access.kubeconfig} does not exist"
        if pulumi.runtime.is_dry_run():
            return None, [f"{path}: {why}, so this preview is without the cluster; an update needs it"]
    except OSError as error:
        why = f"{access.kubeconfig} cannot be read ({error.strerror})"
    except ValueError as error:
        why = f"{access.kubeconfig}: {error}"
    found.append(Problem(path, why))
    return None, []


# Checks across sections ---------------------------------------------------------------------------------------------
# Each yields problems and skips what is absent because it was wrong by itself.


def _zones(sections: SimpleNamespace, region: str) -> Iterator[Problem]:
    network = getattr(sections, "network", None)
    if not network:
        return
    for zone in network.zone_names:
        if region and zone[:-1] != region:
            yield Problem("platform.network.zones", f"{zone!r} is not in region {region} (aws:region)")
    for name, pool in getattr(sections, "gpu_pools", {}).items():
        if pool.zone not in network.zone_names:
            known = ", ".join(network.zone_names)
            yield Problem(f"platform.gpuPools.{name}.zone", f"{pool.zone!r} has no subnet; network.zones has {known}")


def _some_pool(sections: SimpleNamespace, _region: str) -> Iterator[Problem]:
    if sections.pool_names == []:
        yield Problem("platform.gpuPools", "empty; services run on a pool of GPU nodes")


def _ranges(sections: SimpleNamespace, _region: str) -> Iterator[Problem]:
    network, cluster = getattr(sections, "network", None), getattr(sections, "cluster", None)
    if network and cluster and not network.existing and network.cidr.overlaps(cluster.service_cidr):
        yield Problem(
            "platform.cluster.serviceCidr",
            f"'{cluster.service_cidr}' overlaps network.cidr {network.cidr}: Services would hide hosts of the VPC",
        )


def _placement(sections: SimpleNamespace, _region: str) -> Iterator[Problem]:
    for name, service in getattr(sections, "services", {}).items():
        path, names = f"platform.services.{name}", sections.pool_names
        if names and service.pool not in names:
            yield Problem(f"{path}.pool", f"no pool {service.pool!r}{nearest(service.pool, names)}")
        if pool := getattr(sections, "gpu_pools", {}).get(service.pool):
            for fault in service.misfits(pool.instance_type):
                yield Problem(f"{path}.{fault.where()}", fault.text())
            if problem := service.adapter_problem(name):
                yield Problem(f"{path}.engine.loraAdapters", problem)
            driver = pool.ami_type.facts.driver if isinstance(pool, PoolSettings) else ""
            if driver and (problem := driver_problem(IMAGES[service.runtime.value], driver)):
                yield Problem(f"{path}.runtime", problem)


def _releases(sections: SimpleNamespace, _region: str) -> Iterator[Problem]:
    cluster = getattr(sections, "cluster", None)
    for name, pool in getattr(sections, "gpu_pools", {}).items():
        if cluster and pool.ami_release and (problem := release_problem(pool.ami_release, cluster.version)):
            yield Problem(f"platform.gpuPools.{name}.amiRelease", problem)


def _sized(sections: SimpleNamespace, region: str) -> tuple[Report, list[Problem]]:
    """Memory, parallelism, GPU budget, quotas and cost of what is sound so far."""
    rest = {name: getattr(sections, name, None) for name in ("network", "cluster", "monitoring")}
    prices, bad = None, []
    try:
        prices = own_prices.read(ROOT)
    except ValueError as error:
        bad = [Problem("", str(error))]
    pools = getattr(sections, "gpu_pools", {})
    # Of what cannot run on its nodes, the arithmetic would only say more that is not true.
    services = {
        name: service
        for name, service in getattr(sections, "services", {}).items()
        if service.pool in pools and not any(service.misfits(pools[service.pool].instance_type))
    }
    return check(region, pools, services, **rest, prices=prices), bad


def _full(path: str) -> str:
    return path if ":" in path else f"platform.{path}"


def _one_ami_family(sections: SimpleNamespace, _region: str) -> Iterator[Problem]:
    pools: dict[str, PoolSettings | ExistingPool] = getattr(sections, "gpu_pools", {})
    types = {name: pool.ami_type for name, pool in pools.items() if isinstance(pool, PoolSettings)}
    if len({type_.family for type_ in types.values()}) > 1:
        listed = ", ".join(f"{name}: {type_.value}" for name, type_ in types.items())
        yield Problem("platform.gpuPools", f"one GPU operator serves all pools, so their AMIs must agree ({listed})")


def _weights_buckets(sections: SimpleNamespace, _region: str) -> Iterator[Problem]:
    weights = getattr(sections, "weights", None)
    for name, service in getattr(sections, "services", {}).items():
        bucket = service.weights.removeprefix("s3://").split("/")[0]
        if weights and bucket != weights.bucket:
            yield Problem(
                f"platform.services.{name}.weights",
                f"bucket {bucket!r} is not weights.bucket {weights.bucket!r}, which the service's role may read",
            )


RULES = [_some_pool, _zones, _ranges, _placement, _releases, _one_ami_family, _weights_buckets]


def _cluster_name(name: str) -> Iterator[Problem]:
    if problem := name_problem(name, LONGEST_ROLE):
        yield Problem("", f"project and stack name the cluster, {name!r}: {problem}; choose another stack name")


def _own_keys(config: pulumi.Config, keys: Mapping[str, str], sections: SimpleNamespace) -> Iterator[Problem]:
    secrets = {GRAFANA_SECRET, *sections.secret_names}
    for full in keys:
        namespace, _, key = full.partition(":")
        if namespace != config.name or key == "platform" or is_config_secret(full):
            continue
        if key in secrets:
            yield Problem(full, f"a secret in plain text; run: pulumi config set --secret {key}")
        else:
            yield Problem(full, f"unknown key{nearest(key, ['platform', GRAFANA_SECRET])}")


# Warnings -----------------------------------------------------------------------------------------------------------


def _warnings(platform: Platform, access: AwsAccess) -> Iterator[str]:
    if access.profile or access.assume_roles:
        key = "aws:profile" if access.profile else "aws:assumeRoles"
        yield (
            f"{key}: the Kubernetes provider signs in with the AWS CLI, which does not know of it: "
            "set AWS_PROFILE to a profile of that identity too"
        )
    used = {service.pool for service in platform.services.values()}
    for name, pool in platform.gpu_pools.items():
        if name not in used and isinstance(pool, PoolSettings):
            yield f"gpuPools.{name}: no service uses this pool ({pool.nodes.min} to {pool.nodes.max} nodes)"
    for name, service in platform.services.items():
        image = IMAGES[service.runtime.value]
        if image.digest is None:
            pin = "whoever can push this tag changes what the pods run; docs/images.md says how to pin it"
            yield f"services.{name}: image {image.reference} has no digest: {pin}"
