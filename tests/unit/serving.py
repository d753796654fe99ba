"""Arguments of a valid service, and a cluster to put it into, for tests."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

REPOSITORY = {
    "llm/config.pbtxt": 'name: "llm"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n',
    "llm/1/model.py": "class TritonPythonModel: ...\n",
}


def service_args(**changes: Any) -> Any:
    """A Llama-3-8B on two GPUs of a p4d, with the OpenAI server; `changes` replace or add arguments."""
    return {
        "model": "llama-3-8b-instruct",
        "weights": "s3://acme-models/llama-3-8b/2026-10-01/",
        "pool": "a100",
        "runtime": "openai",
        "tensor_parallel": 2,
        "namespace": "inference",
        "instance_type": "p4d.24xlarge",
        "prometheus_url": "http://prometheus.monitoring.svc:9090",
        **changes,
    }


def on_cluster(name: str = "cluster") -> pulumi.ResourceOptions:
    """A cluster to put objects into; to be called in the program, as a provider is a resource."""
    return pulumi.ResourceOptions(providers=[k8s.Provider(name, kubeconfig="apiVersion: v1")])
