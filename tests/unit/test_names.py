"""Names of components, tags and namespaces: what AWS and Kubernetes would refuse is refused before anything is made."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from eks_llm.aws.cluster import Cluster
from eks_llm.aws.weights import Weights
from eks_llm.core.names import Namespace, Tags
from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import record
from tests.unit.test_contracts import COMPONENTS


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: c.__name__)
def test_every_component_refuses_a_name_that_is_no_dns_label(component: Any) -> None:
    with pytest.raises(InvalidArgs) as error:
        record(lambda: component("Bad Name!", {}))
    assert str(error.value) == (
        f"{component.__name__} \"Bad Name!\": name: a name has lower-case letters a-z, digits and '-', begins with a "
        "letter and does not end with '-'"
    )


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: c.__name__)
def test_every_component_refuses_a_name_without_room_for_what_is_appended(component: Any) -> None:
    with pytest.raises(InvalidArgs, match="name: 41 characters; a name has at most 40"):
        record(lambda: component("x" * 41, {}))


def test_a_clusters_name_leaves_room_for_its_roles() -> None:
    # IAM: 64 characters, of which 19 are -aws-ebs-csi-driver and 8 Pulumi's random ending
    args: Any = {
        "version": "1.35",
        "admins": ["arn:aws:iam::111122223333:role/admin"],
        "subnet_ids": ["subnet-0000000a", "subnet-0000000b"],
    }
    record(lambda: Cluster("x" * 37, args))
    with pytest.raises(InvalidArgs, match=r"name: 38 characters; at most 37, as its IAM role x+-aws-ebs-csi-driver-"):
        record(lambda: Cluster("x" * 38, args))


def test_a_reader_of_weights_leaves_room_for_its_role() -> None:
    def made(service: str) -> None:
        args: Any = {"bucket": "acme", "cluster_name": "dev", "namespace": "llm", "readers": {service: "s3://acme/a/"}}
        record(lambda: Weights("x" * 16, args))

    made("y" * 39)  # 16 + 1 + 39 + 8 = 64
    with pytest.raises(InvalidArgs, match="name: 16 characters; at most 15"):
        made("y" * 40)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"aws:owner": "x"}, "aws:owner: AWS keeps tags that begin with aws: for itself"),
        ({"AWS:owner": "x"}, "AWS keeps tags"),
        ({"k" * 129: "x"}, "a tag's key has 1 to 128 characters and its value at most 256"),
        ({"": "x"}, "a tag's key has 1 to 128 characters"),
        ({"team": "v" * 257}, "team: a tag's key has 1 to 128 characters and its value at most 256"),
        ({"team": "a,b"}, "team: a tag has letters, digits, spaces and _.:/=+-@, no ','"),
        ({f"k{i}": "v" for i in range(41)}, "41 tags; at most 40: AWS allows 50"),
    ],
)
def test_tags_that_aws_refuses(tags: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Tags).validate_python(tags)
    assert message in str(error.value)


def test_tags_that_aws_takes() -> None:
    tags = {"team": "ml platform", "cost-center": "a/b:c=1+2@x_y.z", "k" * 128: "v" * 256, "größe": ""}
    assert TypeAdapter(Tags).validate_python(tags) == tags


@pytest.mark.parametrize("name", ["Team", "a.b", "-a", "a-", "", "a" * 64, "~"])
def test_no_namespace(name: str) -> None:
    with pytest.raises(ValidationError, match="not a namespace: 1 to 63 lower-case letters, digits and '-'"):
        TypeAdapter(Namespace).validate_python(name)


@pytest.mark.parametrize("name", ["a", "0", "team-a", "a" * 63])
def test_a_namespace(name: str) -> None:
    assert TypeAdapter(Namespace).validate_python(name) == name
