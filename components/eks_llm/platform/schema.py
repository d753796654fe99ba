"""What a stack file may say: `EksPlatform`, `ExistingPlatform` and their parts.

Each section is the settings model of the component that it configures, so a setting is defined in one place.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pulumi_aws as aws
from pydantic import BeforeValidator, Strict, ValidationInfo, field_validator, model_validator

from ..aws.cluster import ClusterSettings
from ..aws.network import NetworkSettings
from ..aws.node_pool import PoolSettings
from ..aws.weights import WeightsSettings
from ..catalog.eks import AmiType
from ..core.addresses import RoleArn
from ..core.faults import Fault
from ..core.model import Model
from ..core.names import Name, Tags
from ..operators.monitoring import MonitoringSettings
from ..serving.existing_cluster import ExistingClusterSettings, ExistingPool
from ..serving.service import ServiceSettings
from ..sizing import shape

GRAFANA_SECRET = "grafanaAdminPassword"  # noqa: S105 the name of a key
"""Config key of the password of Grafana's `admin` user."""

NAMESPACE = "inference"
"""Where services run on a new cluster."""


def _root(info: ValidationInfo) -> Path:
    """Where paths in a stack file start: the project's root, which the loader states."""
    return info.context["root"] if info.context else Path.cwd()


def _of_its_own(value: str | None) -> str | None:
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

    role_arn: RoleArn
    external_id: str | None = None
    session_name: str | None = None

    @field_validator("session_name")
    @classmethod
    def _as_sts_takes_it(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[\w+=,.@-]{2,64}", name, re.ASCII):
            raise ValueError("a session's name has 2 to 64 letters, digits and +=,.@-_ (STS)")
        return name


class AwsAccess(Model):
    """How the AWS provider signs in, beside the region: what the stack file says under `aws:…`."""

    profile: str | None = None
    assume_roles: list[AssumeRole] = []
    allowed_account_ids: list[Annotated[str, BeforeValidator(_account_id)]] = []

    @model_validator(mode="after")
    def _of_an_allowed_account(self) -> "AwsAccess":
        account = self.assume_roles[-1].role_arn.split(":")[4] if self.assume_roles else ""
        if account and self.allowed_account_ids and account not in self.allowed_account_ids:
            text = "the last role is of account {account}, which {key.allowed_account_ids} does not allow"
            raise Fault("assume_roles", text, account=account)
        return self

    def provider_args(self) -> dict[str, Any]:
        """Arguments of the AWS provider. A plain mapping as a role would reach it with snake_case keys."""
        roles = [aws.ProviderAssumeRoleArgs(**role.args()) for role in self.assume_roles]
        return {**self.args(), "assume_roles": roles or None}


class StackService(ServiceSettings):
    """What a stack file says about a service; unlike the component, it can read the shape from a `config.json`."""

    _own = field_validator("api_key_secret")(_of_its_own)

    @field_validator("model_shape", mode="before")
    @classmethod
    def _from_config_json(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict) or "configJson" not in value:
            return value
        path, root = value["configJson"], _root(info)
        if len(value) > 1:
            raise ValueError("configJson stands alone; the other keys give a shape by hand")
        if not isinstance(path, str) or not (root / path).resolve().is_relative_to(root):
            raise ValueError(f"configJson: {path!r} is not a path below the repository's root, {root.name}/")
        try:
            return shape.from_config((root / path).read_text(encoding="utf-8"))
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
    def _below_the_root_or_absolute(cls, value: str, info: ValidationInfo) -> str:
        root = _root(info)
        if value.startswith("~"):
            raise ValueError(
                "the home folder is not filled in; write the whole path, or one from the repository's root"
            )
        if not Path(value).is_absolute() and not (root / value).resolve().is_relative_to(root):
            raise ValueError(f"neither an absolute path nor one below the repository's root, {root.name}/")
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
