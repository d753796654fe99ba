"""`Weights`: the S3 bucket of model weights, and for each service a role that reads its own prefix and nothing else."""

from typing import Annotated, Any, NotRequired, TypedDict

import pulumi
import pulumi_aws as aws
from pydantic import AfterValidator, model_validator

from ..core.addresses import KeyArn
from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.faults import Fault
from ..core.identity import pod_identity_trust, policy
from ..core.model import In, Model, component_inputs
from ..core.names import Name, check_name
from ..core.s3 import bucket_problem, uri_problem
from ..sizing.needs import Context, Needs, answers, permissions
from .options import expendable

# Arguments ----------------------------------------------------------------------------------------------------------


class WeightsArgs(TypedDict):
    bucket: str
    """Name of the bucket, unique in all of AWS."""
    create: NotRequired[bool]
    """Make the bucket: private, encrypted, versioned, TLS only. Default true; false uses one that exists, and leaves
    its settings alone."""
    force_destroy: NotRequired[bool]
    """Let `pulumi destroy` empty the bucket, with every version of every object. Default false: a bucket that holds
    anything cannot be destroyed (BucketNotEmpty). Refused with `create: false`. A change needs a `pulumi up` before the
    destroy."""
    kms_key: NotRequired[str]
    """ARN of the KMS key, in the bucket's region, that encrypts the objects; readers may decrypt with it. Default: S3's
    own keys."""
    cluster_name: pulumi.Input[str]
    """Name of the cluster whose pods read."""
    namespace: pulumi.Input[str]
    """Namespace of the services."""
    readers: dict[str, str]
    """The prefix that each service reads, e.g. `{"llama-8b": "s3://acme-models/llama-3-8b/"}`. The service's
    ServiceAccount has its name."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


# Models -------------------------------------------------------------------------------------------------------------


def _bucket_name(name: str) -> str:
    if problem := bucket_problem(name):
        raise ValueError(problem)
    return name


class WeightsSettings(Model):
    """What a stack file says about the bucket of weights."""

    bucket: Annotated[str, AfterValidator(_bucket_name)]
    create: bool = True
    force_destroy: bool = False
    kms_key: KeyArn | None = None

    @model_validator(mode="after")
    def _destroys_its_own_only(self) -> "WeightsSettings":
        if self.force_destroy and not self.create:
            text = "true with create: false; a bucket made elsewhere is never destroyed here"
            raise Fault("force_destroy", text)
        return self


class WeightsInputs(WeightsSettings):
    """What the component tells the engine of itself, so that the plan can say who may read what."""

    namespace: In[str]
    readers: dict[Name, str]
    customize: Customize = {}


class _Weights(WeightsInputs):
    cluster_name: In[str]

    @model_validator(mode="after")
    def _readable(self) -> "_Weights":
        for service, uri in self.readers.items():
            if problem := uri_problem(uri, self.bucket):
                raise Fault("readers", "{uri!r}: {problem}", at=service, uri=uri, problem=problem)
        return self


# Builders -----------------------------------------------------------------------------------------------------------


def prefix(uri: str) -> str:
    """The part of an S3 URI behind the bucket, without the last slash."""
    return uri.removeprefix("s3://").partition("/")[2].rstrip("/")


def read_policy(bucket_arn: str, uri: str, kms_key: str | None) -> str:
    """What a service may do: list and get below its prefix, and decrypt with the one key."""
    path = prefix(uri)
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{bucket_arn}/{path}/*"},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket_arn,
            "Condition": {"StringLike": {"s3:prefix": [path, f"{path}/*"]}},
        },
    ]
    if kms_key:
        statements.append({"Effect": "Allow", "Action": "kms:Decrypt", "Resource": kms_key})
    return policy(*statements)


def tls_only(bucket_arn: str) -> str:
    """Bucket policy that refuses plain HTTP to everybody."""
    return policy(
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [bucket_arn, f"{bucket_arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    )


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: WeightsInputs, _context: Context) -> Needs:
    bucket_arn = f"arn:aws:s3:::{settings.bucket}"
    roles = {f"{settings.namespace}/{service}": uri for service, uri in settings.readers.items()}
    allowed = [permissions(role, read_policy(bucket_arn, uri, settings.kms_key)) for role, uri in roles.items()]
    return Needs(permissions=tuple(permission for one in allowed for permission in one))


# Component ----------------------------------------------------------------------------------------------------------


@answers(WeightsInputs, needs)
class Weights(Component):
    """A bucket of model weights (or an existing one), read by one Pod Identity role per service.

    `protect` of the options keeps the bucket; all else can be made again.
    """

    CHILDREN = {
        "made_bucket": Child(aws.s3.Bucket, "bucket", "the bucket; None where it exists", {"bucket": "set bucket"}),
        "ownership": Child(aws.s3.BucketOwnershipControls, "bucket", "the bucket's owner owns all objects"),
        "public_access": Child(
            aws.s3.BucketPublicAccessBlock,
            "bucket",
            "no access for the public",
            dict.fromkeys(
                ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"),
                "weights are never public",
            ),
        ),
        "versioning": Child(aws.s3.BucketVersioning, "bucket", "old versions of objects are kept"),
        "encryption": Child(aws.s3.BucketServerSideEncryptionConfiguration, "bucket", "how objects are encrypted"),
        "bucket_policy": Child(aws.s3.BucketPolicy, "bucket", "TLS only"),
        "roles": Child(aws.iam.Role, "*", "roles by service", {"assume_role_policy": "it names the service's pods"}),
        "role_policies": Child(
            aws.iam.RolePolicy, "*", "what each service may read, by service", {"policy": "it follows from readers"}
        ),
        "associations": Child(
            aws.eks.PodIdentityAssociation,
            "*",
            "which pods get a role, by service",
            {"namespace": "set namespace", "service_account": "pods are named by it"},
        ),
    }

    bucket: pulumi.Output[str]
    """Name of the bucket."""
    role_arns: pulumi.Output[dict[str, str]]
    """Role of each service."""

    def __init__(self, name: str, args: WeightsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = Weights.checked(_Weights, args, name)
        check_name("Weights", name, f"-{max(model.readers, key=len, default='')}")
        super().__init__("eks-llm:index:Weights", name, component_inputs(model, WeightsInputs), opts, model.customize)
        self.made_bucket: aws.s3.Bucket | None = None
        self.ownership: aws.s3.BucketOwnershipControls | None = None
        self.public_access: aws.s3.BucketPublicAccessBlock | None = None
        self.versioning: aws.s3.BucketVersioning | None = None
        self.encryption: aws.s3.BucketServerSideEncryptionConfiguration | None = None
        self.bucket_policy: aws.s3.BucketPolicy | None = None
        self.roles: dict[str, aws.iam.Role] = {}
        self.role_policies: dict[str, aws.iam.RolePolicy] = {}
        self.associations: dict[str, aws.eks.PodIdentityAssociation] = {}
        if model.create:
            self.bucket, bucket_arn = self._create(name, model)
        else:
            self.bucket = pulumi.Output.from_input(model.bucket)
            bucket_arn = pulumi.Output.from_input(f"arn:aws:s3:::{model.bucket}")

        roles: dict[str, pulumi.Output[str]] = {}
        for service, uri in model.readers.items():
            self.roles[service] = role = aws.iam.Role(
                f"{name}-{service}",
                assume_role_policy=pulumi.Output.all(model.cluster_name, model.namespace, service).apply(
                    lambda parts: pod_identity_trust(*parts)
                ),
                opts=expendable(self),
            )
            self.role_policies[service] = granted = aws.iam.RolePolicy(
                f"{name}-{service}",
                role=role.name,
                policy=bucket_arn.apply(lambda arn, uri=uri: read_policy(arn, uri, model.kms_key)),
                opts=expendable(self),
            )
            self.associations[service] = aws.eks.PodIdentityAssociation(
                f"{name}-{service}",
                cluster_name=model.cluster_name,
                namespace=model.namespace,
                service_account=service,
                role_arn=role.arn,
                opts=expendable(self, [granted]),
            )
            roles[service] = role.arn
        self.role_arns = pulumi.Output.all(**roles)
        self.register_outputs({"bucket": self.bucket, "roleArns": self.role_arns})

    def _create(self, name: str, model: _Weights) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        here = expendable(self)
        self.made_bucket = bucket = aws.s3.Bucket(
            f"{name}-bucket",
            bucket=model.bucket,
            force_destroy=model.force_destroy,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.ownership = aws.s3.BucketOwnershipControls(
            f"{name}-bucket", bucket=bucket.bucket, rule={"object_ownership": "BucketOwnerEnforced"}, opts=here
        )
        self.public_access = private = aws.s3.BucketPublicAccessBlock(
            f"{name}-bucket",
            bucket=bucket.bucket,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=here,
        )
        self.versioning = aws.s3.BucketVersioning(
            f"{name}-bucket", bucket=bucket.bucket, versioning_configuration={"status": "Enabled"}, opts=here
        )
        self.encryption = aws.s3.BucketServerSideEncryptionConfiguration(
            f"{name}-bucket",
            bucket=bucket.bucket,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms" if model.kms_key else "AES256",
                        "kms_master_key_id": model.kms_key,
                    },
                    # One KMS call per bucket and hour instead of one per object and reader.
                    "bucket_key_enabled": model.kms_key is not None,
                }
            ],
            opts=here,
        )
        self.bucket_policy = aws.s3.BucketPolicy(
            f"{name}-bucket",
            bucket=bucket.bucket,
            policy=bucket.arn.apply(tls_only),
            # S3 answers 409 to changes of both at the same time.
            opts=expendable(self, [private]),
        )
        return bucket.bucket, bucket.arn
