"""`InferenceService`: what is deployed for both runtimes, and what is refused."""

import json
import re
from typing import Any

import pulumi
import pytest

from eks_llm.catalog.images import IMAGES, driver_problem
from eks_llm.core.placement import gpu_toleration, node_labels
from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.service import InferenceService, bundled_repository
from eks_llm.serving.workload import share
from tests.unit.serving import REPOSITORY, on_cluster, service_args

TRITON = {"runtime": "triton", "model_repository": REPOSITORY}


def run(**changes: Any) -> Recording:
    return record(lambda: InferenceService("llama", service_args(**changes), on_cluster()))


def pod(**changes: Any) -> dict[str, Any]:
    return run(**changes).one("Deployment").inputs["spec"]["template"]["spec"]


def main(**changes: Any) -> dict[str, Any]:
    (container,) = pod(**changes)["containers"]
    return container


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def volumes(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {volume["name"]: volume for volume in spec["volumes"]}


BOTH = pytest.mark.parametrize("runtime", [{"runtime": "openai"}, TRITON], ids=["openai", "triton"])

# Placement and size -------------------------------------------------------------------------------------------------


@BOTH
def test_a_pod_takes_the_gpus_of_its_parallelism_on_nodes_of_its_pool(runtime: dict[str, Any]) -> None:
    spec = pod(tensor_parallel=2, pipeline_parallel=2, **runtime)
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert spec["nodeSelector"].items() <= node_labels("a100", "p4d.24xlarge").items()
    assert gpu_toleration() in spec["tolerations"]


def test_pods_for_all_gpus_fit_on_a_node() -> None:
    # p4d.24xlarge: 96 vCPUs, 1,152 GiB; EKS reserves 255 MiB + 11 MiB for each of 737 pods, DaemonSets come on top.
    requests = share("p4d.24xlarge", 2).resources["requests"]
    assert 4 * int(requests["cpu"]) <= 96 - 4
    assert 4 * int(requests["memory"].removesuffix("Gi")) <= 1152 - 8.2 - 8
    limits = share("p4d.24xlarge", 2).resources["limits"]
    assert "cpu" not in limits


def test_shared_memory_is_memory_and_larger_than_the_runtimes_64_mb() -> None:
    spec = pod()
    assert volumes(spec)["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in spec["containers"][0]["volumeMounts"]


def test_replicas_belong_to_the_autoscaler() -> None:
    assert "replicas" not in run().one("Deployment").inputs["spec"]


def test_a_rollout_needs_no_spare_gpu() -> None:
    strategy = run().one("Deployment").inputs["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


# Weights ------------------------------------------------------------------------------------------------------------


@BOTH
def test_weights_come_from_the_nvme_array_and_are_read_only_to_the_server(runtime: dict[str, Any]) -> None:
    spec = pod(**runtime)
    path = volumes(spec)["weights"]["hostPath"]["path"]
    assert path.startswith("/mnt/k8s-disks/0/eks-llm/models/")
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["weights"] == {"name": "weights", "mountPath": "/models/llama", "readOnly": True}
    init = env(spec["initContainers"][0])
    assert init["TARGET"] == path
    assert init["SOURCE"] == "s3://acme-models/llama-3-8b/2026-10-01/"
    assert volumes(spec)["cache"]["hostPath"]["path"].startswith("/mnt/k8s-disks/0/eks-llm/cache/")


@BOTH
def test_no_container_sees_more_of_the_node_than_the_folder_for_pods(runtime: dict[str, Any]) -> None:
    """Kubelet's and containerd's data lie beside it on the array."""
    spec = pod(**runtime)
    paths = {name: volume["hostPath"] for name, volume in volumes(spec).items() if "hostPath" in volume}
    assert paths["nvme"] == {"path": "/mnt/k8s-disks/0/eks-llm", "type": "Directory"}
    assert all(path["path"].startswith("/mnt/k8s-disks/0/eks-llm") for path in paths.values())
    mounts = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert "nvme" not in mounts


def test_a_new_prefix_is_a_new_folder() -> None:
    def folder(uri: str) -> str:
        return volumes(pod(weights=uri))["weights"]["hostPath"]["path"]

    assert folder("s3://acme-models/a/1/") != folder("s3://acme-models/a/2/")


def test_no_pod_reads_the_models_hub_or_reports_its_use() -> None:
    said = env(main())
    assert said["HF_HUB_OFFLINE"] == "1"
    assert said["VLLM_NO_USAGE_STATS"] == "1"


# Security -----------------------------------------------------------------------------------------------------------


@BOTH
def test_the_server_is_confined(runtime: dict[str, Any]) -> None:
    spec = pod(**runtime)
    security = spec["containers"][0]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False  # a Service called `vllm` would set VLLM_PORT, at which vLLM ends


@BOTH
def test_everything_that_is_written_has_a_writable_mount(runtime: dict[str, Any]) -> None:
    container = main(**runtime)
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    said = env(container)
    for name in ("HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"):
        assert said[name].startswith(tuple(writable)), name


def test_the_api_key_is_in_a_secret_and_nowhere_else() -> None:
    recording = run(api_key_secret="inferenceApiKey", api_key="correct horse")
    (container,) = recording.one("Deployment").inputs["spec"]["template"]["spec"]["containers"]
    secret = recording.one("Secret")
    reference = {"name": secret.inputs["metadata"]["name"], "key": "api-key"}
    assert env(container)["EKS_LLM_API_KEYS"] == {"secretKeyRef": reference}
    assert secret.urn in recording.one("Deployment").dependencies
    assert secret.inputs["stringData"].keys() == {"api-key"}
    # The value there is marked as a secret, which the recorder does not show.
    assert not [item.name for item in recording.resources if "correct horse" in str(item.inputs)]


def test_a_new_api_key_rolls_the_pods() -> None:
    def annotations(key: str) -> dict[str, Any]:
        recording = run(api_key_secret="inferenceApiKey", api_key=key)
        return recording.one("Deployment").inputs["spec"]["template"]["metadata"]["annotations"]

    assert annotations("one") != annotations("two")


def peers(policy: dict[str, Any], port: int) -> list[dict[str, Any]]:
    return [
        peer
        for rule in policy["spec"]["ingress"]
        if port in [item["port"] for item in rule["ports"]]
        for peer in rule["from"]
    ]


def test_only_clients_reach_the_server_and_only_prometheus_its_metrics() -> None:
    policy = run(**TRITON, client_namespaces=["gateway"]).one("NetworkPolicy").inputs
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    labelled, gateway = peers(policy, 8001)
    assert labelled == {"podSelector": {"matchLabels": {"eks-llm.dev/client": "true"}}}, "of its own namespace alone"
    assert gateway["namespaceSelector"]["matchExpressions"][0]["values"] == ["gateway"]
    for port in (8002, 8003):
        (monitoring,) = peers(policy, port)
        assert monitoring["namespaceSelector"]["matchExpressions"][0]["values"] == ["monitoring"]


def test_a_pod_reaches_dns_s3_and_the_identity_agent_and_nothing_else() -> None:
    dns, s3, agent = run().one("NetworkPolicy").inputs["spec"]["egress"]
    assert {item["port"] for item in dns["ports"]} == {53}
    assert {item["port"] for item in s3["ports"]} == {443}
    assert "10.0.0.0/8" in s3["to"][0]["ipBlock"]["except"]
    # EKS user guide: the Pod Identity agent answers on 169.254.170.23:80.
    assert agent == {"to": [{"ipBlock": {"cidr": "169.254.170.23/32"}}], "ports": [{"protocol": "TCP", "port": 80}]}


def test_the_policy_is_there_before_the_first_pod() -> None:
    recording = run()
    assert recording.one("NetworkPolicy").urn in recording.one("Deployment").dependencies


# Life of a pod ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "path"), [({"runtime": "openai"}, "/health"), (TRITON, "/v2/health/ready")], ids=["openai", "triton"]
)
def test_probes_give_the_model_time_to_load_and_never_restart_a_busy_engine(runtime: dict[str, Any], path: str) -> None:
    container = main(**runtime)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    budget = startup["periodSeconds"] * startup["failureThreshold"]
    assert budget >= int(env(container)["VLLM_ENGINE_READY_TIMEOUT_S"])
    assert liveness["periodSeconds"] * liveness["failureThreshold"] > 120  # the watchdog's own time


def test_pulumi_waits_longer_than_the_rollout_may_take() -> None:
    deployment = run().one("Deployment").inputs
    deadline = deployment["spec"]["progressDeadlineSeconds"]
    assert int(deployment["metadata"]["annotations"]["pulumi.com/timeoutSeconds"]) > deadline
    startup = deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert deadline > startup["periodSeconds"] * startup["failureThreshold"] + 1800  # and a new node before that


@pytest.mark.parametrize(
    ("runtime", "drains", "stops"),
    [
        ({"runtime": "openai"}, r"flock --timeout (\d+)", r"--shutdown-timeout=(\d+)"),
        (TRITON, r"--exit-timeout-secs=(\d+)", None),
    ],
    ids=["openai", "triton"],
)
def test_the_drain_budget_reaches_pod_and_server(runtime: dict[str, Any], drains: str, stops: str | None) -> None:
    spec = pod(limits={"requestTimeout": "2m"}, **runtime)
    (container,) = spec["containers"]
    hook = str(container["lifecycle"]["preStop"])
    text = hook + str(container["args"])

    def seconds(pattern: str) -> int:
        (found,) = re.findall(pattern, text)
        return int(found)

    sleep, budget = seconds(r"sleep (\d+); touch /dev/shm/eks-llm/draining"), seconds(drains)
    assert budget > 120
    assert spec["terminationGracePeriodSeconds"] > sleep + budget + (seconds(stops) if stops else 0)


def test_pods_can_leave_a_node() -> None:
    recording = run()
    budget = recording.one("PodDisruptionBudget").inputs["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    template = recording.one("Deployment").inputs["spec"]["template"]
    local = template["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"]
    on_disk = {
        name
        for name, volume in volumes(template["spec"]).items()
        if "hostPath" in volume or ("emptyDir" in volume and volume["emptyDir"].get("medium") != "Memory")
    }
    assert on_disk == set(local.split(","))


# Runtimes -----------------------------------------------------------------------------------------------------------


def mounted(recording: Recording, part: str) -> dict[str, str]:
    return recording.one("ConfigMap", f"llama-{part}").inputs["data"]


def test_vllm_serve_is_told_everything_by_flags() -> None:
    container = main(engine={"maxModelLen": 4096, "loraAdapters": {"sql": "adapters/sql"}})
    assert container["command"] == ["vllm", "serve"]
    args = container["args"]
    assert args[0] == "/models/llama"
    for flag in (
        "--tensor-parallel-size=2",
        "--max-model-len=4096",
        "--max-num-seqs=256",
        "--max-num-batched-tokens=2048",
    ):
        assert flag in args
    assert args[-2:] == ["--lora-modules", "sql=/models/llama/adapters/sql"]


def test_triton_keeps_its_images_entrypoint_which_sets_up_cuda() -> None:
    container = main(**TRITON)
    assert "command" not in container
    assert container["args"][0] == "tritonserver"


def test_triton_closes_what_no_client_needs_with_a_secret_that_no_manifest_holds() -> None:
    container = main(**TRITON)
    closed = [text for text in container["args"] if "restricted" in text]
    assert len(closed) == 2  # HTTP and gRPC
    assert all(
        "model-repository" in text and "shared-memory" in text and text.endswith("$(POD_UID)") for text in closed
    )
    assert env(container)["POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


def test_each_model_is_mounted_by_itself_and_engine_json_where_the_model_looks() -> None:
    mounts = {mount["mountPath"]: mount for mount in main(**TRITON)["volumeMounts"]}
    assert mounts["/models-repo/llm"]["subPath"] == "llm"
    assert "/models-repo" not in mounts
    assert mounts["/etc/eks-llm/engine.json"]["subPath"] == "engine.json"


def test_files_of_the_repository_keep_their_paths() -> None:
    items = {i["key"]: i["path"] for i in volumes(pod(**TRITON))["repository"]["configMap"]["items"]}
    data = mounted(run(**TRITON), "repository")
    assert {items[key]: text for key, text in data.items()}["llm/1/model.py"] == REPOSITORY["llm/1/model.py"]


@pytest.mark.parametrize("repository", [REPOSITORY, None], ids=["given", "bundled"])
def test_triton_runs_as_many_instances_as_there_are_front_ends(repository: Any) -> None:
    changes = {"runtime": "triton", **({"model_repository": repository} if repository else {})}
    recording = run(engine={"frontends": 3}, **changes)
    assert json.loads(mounted(recording, "engine")["engine.json"])["frontends"] == 3
    assert "count: 3" in mounted(recording, "repository")["llm__config.pbtxt"]


def test_the_package_brings_its_own_model_repository() -> None:
    files = bundled_repository()
    assert {"llm/config.pbtxt", "llm/1/model.py"} <= files.keys()
    # A ConfigMap holds at most 1 MiB. Source: Kubernetes documentation.
    assert sum(len(text.encode()) for text in files.values()) < 1024**2


def test_changed_files_roll_the_pods_and_leave_running_ones_alone() -> None:
    def state(**changes: Any) -> tuple[str, str, str]:
        recording = run(**TRITON, **changes)
        template = recording.one("Deployment").inputs["spec"]["template"]
        config = recording.one("ConfigMap", "llama-engine").inputs
        assert config["immutable"] is True
        used = volumes(template["spec"])["engine"]["configMap"]["name"]
        return template["metadata"]["annotations"]["eks-llm.dev/config-hash"], config["metadata"]["name"], used

    before, after = state(), state(engine={"maxNumSeqs": 100})
    assert before[0] != after[0]
    assert before[1] != after[1] == after[2]
    assert state() == before


@pytest.mark.parametrize(("runtime", "ports"), [({"runtime": "openai"}, {8000}), (TRITON, {8000, 8001, 8002, 8003})])
def test_a_service_and_its_pods_have_names_in_dns(runtime: dict[str, Any], ports: set[int]) -> None:
    recording = run(**runtime)
    for name, headless in (("llama-service", False), ("llama-pods", True)):
        found = recording.one("Service", name)
        assert {port["port"] for port in found.inputs["spec"]["ports"]} == ports
        assert (found.inputs["spec"].get("clusterIP") == "None") is headless
        assert recording.one("Deployment").urn in found.dependencies  # or Pulumi's ten minutes end before the load


def test_the_service_account_is_named_as_the_identity_association_expects() -> None:
    assert run().one("ServiceAccount").inputs["metadata"]["name"] == "llama"


# Images -------------------------------------------------------------------------------------------------------------


def test_both_runtimes_carry_the_same_vllm() -> None:
    assert IMAGES["triton"].vllm == IMAGES["openai"].vllm


@pytest.mark.parametrize(("driver", "runs"), [("580.159.03", True), ("595.91.07", True), ("570.124.06", False)])
def test_cuda_13_runs_from_driver_580(driver: str, runs: bool) -> None:
    for role in ("triton", "openai"):
        assert (driver_problem(IMAGES[role], driver) is None) is runs


def test_an_old_driver_is_told_what_would_do() -> None:
    assert "it needs 580 or newer" in (driver_problem(IMAGES["triton"], "570.124.06") or "")


def test_known_digests_pin_the_image() -> None:
    assert IMAGES["openai"].reference.startswith("docker.io/vllm/vllm-openai:v0.27.1@sha256:")


# What is refused ----------------------------------------------------------------------------------------------------

PHI_SHAPE = {
    **{"layers": 40, "hidden": 5120, "heads": 40, "kvHeads": 10, "headDim": 128, "intermediate": 17920},
    **{"vocab": 100352, "maxPosition": 16384},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lama-3-8b-instruct"}, "did you mean 'llama-3-8b-instruct'?"),
        ({"model": "own", "model_shape": {"layers": 1}}, "model_shape.hidden: required, but missing"),
        ({"instance_type": "p4d.24xlrge"}, "did you mean 'p4d.24xlarge'?"),
        ({"profile": "fast"}, "'fast' is not one of 'lowLatency', 'balanced' or 'highThroughput'"),
        ({"runtime": "tgi"}, "'tgi' is not one of 'triton' or 'openai'"),
        ({"quantization": "awk"}, "did you mean 'awq'?"),
        ({"quantization": "fp8"}, "quantization: FP8 W8A8 needs compute capability 8.9"),
        ({"engine": {"kvCacheDtype": "fp8"}}, "engine.kv_cache_dtype: a fp8 KV cache needs compute capability 8.9"),
        ({"tensor_parallel": 3}, "tensor_parallel: 3 does not divide 32 attention heads (use 1, 2, 4 or 8)"),
        ({"model": "phi-4", "tensor_parallel": 4}, "4 and 10 key/value heads: neither divides the other"),
        ({"model": "own", "model_shape": PHI_SHAPE, "tensor_parallel": 4}, "4 and 10 key/value heads"),
        ({"tensor_parallel": 8, "pipeline_parallel": 2}, "more than the 8 GPU(s) of a node"),
        ({"engine": {"maxModelLen": 9000}}, "engine.max_model_len: 9000 is more than llama-3-8b-instruct was"),
        ({"engine": {"maxNumSeqs": 9, "maxNumBatchedTokens": 8}}, "engine.max_num_batched_tokens: 8 is less than"),
        ({"weights": "s3://acme-models/llama-3-8b"}, "weights: 's3://acme-models/llama-3-8b': does not end with '/'"),
        ({"weights": "https://acme-models/llama/"}, "not an S3 prefix such as s3://acme-models/llama-3-8b/2026-10-01/"),
        ({"weights": "s3://acme-models/a/../b/"}, "'s3://acme-models/a/../b/': has a part that is empty, '.' or"),
        ({"weights": "s3://acme-models/ä/"}, "other characters than letters, digits and"),
        ({"client_namespaces": ["Team A"]}, "client_namespaces[0]: 'Team A': not a namespace: 1 to 63 lower-case"),
        ({"namespace": "inference_"}, "namespace: 'inference_': not a namespace"),
        ({"engine": {"loraAdapters": {"llama": "sql"}}}, "engine.lora_adapters: 'llama' is the service's own name"),
        ({"slo": {"tpotP99": "0ms"}}, "slo.tpot_p99: '0ms': an SLO is at least 1ms; leave it out for no alert"),
        ({"slo": {"ttftP99": "820"}}, "slo.ttft_p99: '820': write a number with a unit"),
        ({"slo": {"ttft": "820ms"}}, "slo.ttft: unknown key; did you mean 'ttft_p99'?"),
        ({"runtime": "triton", "api_key_secret": "k"}, "api_key_secret: 'k': triton knows no API keys"),
        ({"api_key_secret": "k"}, "api_key: required with api_key_secret"),
        ({"runtime": "triton", "model_repository": {"a/config.pbtxt": ""}}, "holds no llm/config.pbtxt"),
        ({"pool": "A100"}, "a name has lower-case letters"),
    ],
)  # fmt: skip
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        run(**changes)
    assert message in str(error.value)


def test_refuses_a_namespace_that_a_preview_does_not_know() -> None:
    with pytest.raises(InvalidArgs) as error:
        record(
            lambda: InferenceService(
                "llama", service_args(namespace=pulumi.Output.from_input("inference")), on_cluster()
            )
        )
    assert str(error.value) == (
        'InferenceService "llama": namespace: an output, and it must be known at preview; give its name as text, and '
        "let depends_on name the Namespace"
    )


def test_the_region_of_the_weights_reaches_the_pod() -> None:
    (fetch,) = run(region="eu-west-1").one("Deployment").inputs["spec"]["template"]["spec"]["initContainers"]
    assert {"name": "AWS_REGION", "value": "eu-west-1"} in fetch["env"]
