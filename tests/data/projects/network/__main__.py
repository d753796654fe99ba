import helper
import pulumi

from eks_llm.aws.network import Nat, Network

config = pulumi.Config()
network = Network(
    helper.NAME,
    {"region": "us-west-2", "zones": config.require_object("zones"), "nat": Nat(config.require("nat"))},
)
pulumi.export("vpcId", network.vpc_id)
