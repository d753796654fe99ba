"""`InferenceService`: one model, served by Triton or by vLLM's OpenAI server, scaled on its own demand."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any, NotRequired, TypedDict, TypeVar, cast

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_snake

from ..catalog.images import IMAGES
from ..catalog.instances import GPUS, INSTANCES
from ..catalog.models import MODELS, ModelShape
from ..catalog.quantization import QUANTIZATIONS
from ..core.component import Component
from ..core.customize import Customize
from ..core.faults import Fault, Faults
from ..core.model import In, Model, component_inputs
from ..core.names import Name, Namespace
from ..core.problems import InvalidArgs, Problem, nearest
from ..core.quantities import Duration
from ..core.s3 import uri_problem
from ..core.secrets import SecretName
from ..core.timing import drain, start
from ..observe.dashboards.grafana import dashboard
from ..observe.dashboards.service import service as service_board
from ..observe.dashboards.sidecar import config_map as dashboard_config_map
from ..observe.metrics import SERVICE_LABEL
from ..observe.rules import RUNBOOKS
from ..observe.service_rules import service_rules
from ..sizing import memory, parallelism, replica, validity
from ..sizing.needs import Context, Needs, answers
from ..sizing.weights import weights_gib
from . import openai, triton
from .children import CHILDREN
from .demand import doubts, flows, images, policy, sized
from .endpoint import Endpoint, SecretKey
from .engine import (
    Engine,
    EngineArgs,
    Profile,
    adapter_paths,
    dumps,
    engine_args,
    engine_json,
    frontends,
    max_model_len,
    max_num_batched_tokens,
    max_num_seqs,
)
from .expected import Expected, ExpectedArgs
from .extra import server_arguments
from .limits import Limits, LimitsArgs
from .observability import Slo, SloArgs, pod_monitor, watched
from .scaling import Scaling, ScalingArgs, scaled_object
from .targets import Targets, targets
from .workload import (
    HIGHEST_PRIORITY,
    Server,
    Workload,
    config_map,
    config_map_name,
    content_hash,
    deployment,
    disruption_budget,
    model_path,
    network_policy,
    priority_class,
    service,
    service_account,
    share,
)

R = TypeVar("R", bound=pulumi.Resource)

# Arguments ----------------------------------------------------------------------------------------------------------


class Runtime(Enum):
    """What answers requests in front of the engine."""

    TRITON = "triton"
    OPENAI = "openai"


class InferenceServiceArgs(TypedDict):
    model: str
    """Name in the catalogue (`catalog.models.MODELS`), or any name together with `model_shape`."""
    model_shape: NotRequired[dict[str, Any]]
    """The model's `config.json` in numbers, with the fields of `catalog.models.ModelShape`. In a stack file also
    `{configJson: path}`, a Hugging Face `config.json` below the repository's root. Default: the catalogue's."""
    quantization: NotRequired[str]
    """What the checkpoint holds, a key of `catalog.quantization.QUANTIZATIONS`. Default `none` (bfloat16, or as
    published). Sizes the pod; vLLM itself reads the method from the checkpoint."""
    weights: str
    """`s3://bucket/prefix/` of the model folder. Nodes keep a copy under this name for good, so a prefix must never
    change its content: give new weights a new one, e.g. with a date."""
    pool: str
    """Name of the GPU node pool that the pods run on."""
    runtime: Runtime
    """`triton` (gRPC and HTTP, ports 8000 and 8001) or `openai` (`vllm serve`, port 8000)."""
    tensor_parallel: NotRequired[int]
    """GPUs that share every layer. Must divide the attention heads. Default 1."""
    pipeline_parallel: NotRequired[int]
    """Stages of layers, each on `tensor_parallel` GPUs of the same node. Default 1."""
    profile: NotRequired[Profile]
    """`lowLatency`, `balanced` (default) or `highThroughput`: defaults of the engine section."""
    engine: NotRequired[EngineArgs]
    """Settings of vLLM. Default: the profile's."""
    limits: NotRequired[LimitsArgs]
    """What is refused instead of queued, and how long a request may take. Default: see each field."""
    scaling: NotRequired[ScalingArgs]
    """How many replicas, and by which demand. Default: one."""
    slo: NotRequired[SloArgs]
    """Latency targets. They become alerts, and the defaults of `scaling.in_flight_per_replica` and
    `limits.max_queued_requests`. Default: none."""
    expected: NotRequired[ExpectedArgs]
    """The load, for the cost report and for what a replica carries within the `slo`. Default: see each field."""
    priority: NotRequired[int]
    """Who gets GPUs while there are fewer than asked for, as after the loss of a node: a service of higher priority
    takes them from one of lower, whose pods drain and wait. 0 to 1,000,000. Default 0, the lowest."""
    accept_memory: NotRequired[bool]
    """Only warn where the model does not fit by calculation, which is an estimate; for a service that is known to
    start. Default false."""
    api_key_secret: NotRequired[str]
    """Stack files: config key of the API key that clients must send (runtime `openai` only). While clients change over
    it may hold two, separated by a space. Default: no key; the NetworkPolicy alone says who may call."""
    client_namespaces: NotRequired[list[str]]
    """Namespaces whose pods may call the service. In its own namespace pods need the label
    `eks-llm.dev/client: "true"`. Default: none."""
    namespace: str
    """Namespace of all objects. Pods use hostPath, so it must admit privileged pods. Plain text, no output: names and
    addresses are made of it, which a preview shows."""
    instance_type: str
    """EC2 type of the pool's nodes, e.g. `p4d.24xlarge`."""
    prometheus_url: pulumi.Input[str]
    """Where KEDA queries Prometheus, e.g. `http://prometheus-operated.monitoring.svc:9090`."""
    node_start: NotRequired[str]
    """How long a new node of the pool takes until it runs the image, e.g. `10m`. Scaling reckons with it, and
    rollouts and alerts wait longer for one that takes long. Default 0s: no node is ever added."""
    region: NotRequired[pulumi.Input[str]]
    """AWS region of the weights' bucket. Default: the cluster's, which Pod Identity tells the pod."""
    monitoring_namespace: NotRequired[str]
    """Namespace that Prometheus scrapes from. Default `monitoring`."""
    usd_per_gpu_hour: NotRequired[float]
    """Price of a GPU, USD per hour, for the recorded cost per million tokens. Default: not known, and not recorded."""
    runbooks: NotRequired[str]
    """Web address below which alerts find their runbooks. Default: docs/runbooks/ of this repository."""
    api_key: NotRequired[pulumi.Input[str]]
    """The API key that clients must send, as a secret; the component makes a Secret of it. Required with
    `api_key_secret`. A new key rolls the pods."""
    model_repository: NotRequired[dict[str, str]]
    """Triton's model repository as text by path, e.g. `llm/config.pbtxt`; `triton.read_model_repository` reads one.
    Default: the one that comes with this package."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class ServiceSettings(Model):
    """What a stack file says about a service."""

    model: str
    model_shape: ModelShape | None = Field(default=None, validate_default=False)
    quantization: str = "none"
    weights: str
    pool: Name
    runtime: Runtime
    tensor_parallel: int = Field(default=1, ge=1)
    pipeline_parallel: int = Field(default=1, ge=1)
    profile: Profile = Profile.BALANCED
    engine: Engine = Engine()
    limits: Limits = Limits()
    scaling: Scaling = Scaling()
    slo: Slo = Slo()
    expected: Expected = Expected()
    priority: int = Field(default=0, ge=0, le=HIGHEST_PRIORITY)
    accept_memory: bool = False
    api_key_secret: SecretName | None = None
    client_namespaces: list[Namespace] = []

    @field_validator("quantization")
    @classmethod
    def _known_format(cls, value: str) -> str:
        if value not in QUANTIZATIONS:
            raise ValueError(f"unknown format{nearest(value, list(QUANTIZATIONS))}")
        return value

    @field_validator("weights")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if problem := uri_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("api_key_secret")
    @classmethod
    def _only_openai(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("runtime") is Runtime.TRITON:
            raise ValueError("Triton knows no API keys; use runtime openai, or put a gateway in front")
        return value

    @model_validator(mode="after")
    def _engine_has_no_server(self) -> "ServiceSettings":
        text = "an argument of `vllm serve`, around the engine; runtime triton runs the engine alone"
        if self.runtime is Runtime.TRITON and (keys := server_arguments(self.engine.extra)):
            raise Faults(*(Fault("engine.extra", text, at=key) for key in keys))
        return self

    @model_validator(mode="after")
    def _fits_the_model(self) -> "ServiceSettings":
        if not self.model_shape and self.model not in MODELS:
            hint = nearest(self.model, list(MODELS))
            text = "{model!r} is not in the catalogue and has no {key.model_shape}{hint}"
            raise Fault("model", text, model=self.model, hint=hint)
        if (length := self.engine.max_model_len or 0) > self.shape.max_position:
            text = "{length} is more than {model} was trained for ({most})"
            most = self.shape.max_position
            raise Fault("engine.max_model_len", text, length=length, model=self.model, most=most)
        tokens, sequences = max_num_batched_tokens(self.engine, self.profile), max_num_seqs(self.engine, self.profile)
        if tokens < sequences:
            text = "{tokens} is less than {key.max_num_seqs} {sequences}, one token each"
            raise Fault("engine.max_num_batched_tokens", text, tokens=tokens, sequences=sequences)
        if (in_flight := self.scaling.in_flight(sequences)) > sequences:
            raise Fault(
                "scaling.in_flight_per_replica",
                "{in_flight} is more than a replica runs at once ({key.engine.max_num_seqs} {sequences}): requests "
                "would wait before another replica starts",
                in_flight=in_flight,
                sequences=sequences,
            )
        return self

    @model_validator(mode="after")
    def _expects_what_can_be(self) -> "ServiceSettings":
        replicas, low, high = self.expected.replicas, self.scaling.min, self.scaling.max
        if replicas is not None and not low <= replicas <= high:
            text = "{replicas:g} is not from scaling.min {low} to scaling.max {high}"
            raise Fault("expected.replicas", text, replicas=replicas, low=low, high=high)
        tokens, longest = self.expected.tokens_per_request or 0, max_model_len(self.engine, self.shape)
        if tokens > longest:
            text = "{tokens} is more than the longest request of {longest}"
            raise Fault("expected.tokens_per_request", text, tokens=tokens, longest=longest)
        return self

    @property
    def shape(self) -> ModelShape:
        return self.model_shape or MODELS[self.model]

    @property
    def gpus(self) -> int:
        """GPUs of a pod."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def memory_engine(self) -> memory.Engine:
        """The engine settings on which memory depends."""
        settings = self.engine
        return memory.Engine(
            vllm=IMAGES[self.runtime.value].vllm or "",
            max_model_len=max_model_len(settings, self.shape),
            max_num_seqs=max_num_seqs(settings, self.profile),
            max_num_batched_tokens=max_num_batched_tokens(settings, self.profile),
            gpu_memory_utilization=settings.gpu_memory_utilization,
            kv_cache_dtype=settings.kv_cache_dtype,
            enforce_eager=bool(settings.extra.get("enforce_eager")),
            lora_adapters=len(settings.lora_adapters),
            max_lora_rank=settings.max_lora_rank,
        )

    def estimate(self, instance_type: str) -> replica.Replica | None:
        """A replica on nodes of this type at the expected load, by calculation; None where memory does not suffice."""
        try:
            fit = memory.fit(
                self.model,
                self.shape,
                GPUS[INSTANCES[instance_type].gpu],
                self.memory_engine,
                quantization=self.quantization,
                tensor_parallel=self.tensor_parallel,
                pipeline_parallel=self.pipeline_parallel,
            )
        except ValueError:  # sizing reports it
            return None
        if fit.kv_cache <= 0:
            return None
        tokens = self.expected.tokens_per_request or max(1, fit.engine.max_model_len // 4)
        output = max(1, tokens // 4)
        found = replica.estimated(self.shape, fit, max(1, tokens - output), output)
        measured = (self.expected.tokens_per_second or 0) / output
        return found.at(measured) if 0 < measured < 1 / found.prefill else found

    def targets(self, instance_type: str) -> Targets:
        """What one replica on nodes of this type is meant to carry."""
        sequences = max_num_seqs(self.engine, self.profile)
        return targets(self.scaling, self.limits, self.slo, sequences, self.estimate(instance_type))

    def adapter_problem(self, service: str) -> str | None:
        """What is wrong with the LoRA adapters of a service of this name; None if nothing is."""
        if service in self.engine.lora_adapters:
            return f"{service!r} is the service's own name, by which requests ask for the model itself"
        return None

    def misfits(self, instance_type: str) -> Iterator[Fault]:
        """Why the service cannot run on nodes of this type."""
        instance = INSTANCES[instance_type]
        problem = parallelism.problem(self.shape, self.tensor_parallel, instance, self.pipeline_parallel)
        if problem:
            yield Fault("tensor_parallel", "{problem}", problem=problem)
        for finding in validity.problems(self.shape, GPUS[instance.gpu], self.quantization, self.engine.kv_cache_dtype):
            if finding.error:
                yield Fault(to_snake(finding.path), "{message}", message=finding.message)


class ServiceInputs(ServiceSettings):
    """What the component tells the engine of itself, so that tools can size it and say who reaches it."""

    namespace: Namespace
    monitoring_namespace: Namespace = "monitoring"


class _InferenceService(ServiceInputs):
    instance_type: str
    prometheus_url: In[str]
    node_start: Duration = Duration(0)
    region: In[str] | None = None
    usd_per_gpu_hour: float | None = Field(default=None, gt=0)
    runbooks: str = RUNBOOKS
    api_key: In[str] | None = None
    model_repository: dict[str, str] = {}
    customize: Customize = {}

    @model_validator(mode="before")
    @classmethod
    def _known_namespace(cls, args: Any) -> Any:
        if isinstance(args, Mapping) and isinstance(cast(Mapping[str, Any], args).get("namespace"), pulumi.Output):
            raise Fault(
                "namespace",
                "an output, and it must be known at preview; give its name as text, and let depends_on name the "
                "Namespace",
            )
        return args

    @field_validator("instance_type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value not in INSTANCES:
            raise ValueError(f"unknown GPU instance type{nearest(value, list(INSTANCES))}")
        return value

    @field_validator("model_repository")
    @classmethod
    def _holds_the_model(cls, value: dict[str, str]) -> dict[str, str]:
        if value and "llm/config.pbtxt" not in value:
            raise ValueError(f"holds no llm/config.pbtxt (it has {', '.join(sorted(value))})")
        return value

    @model_validator(mode="after")
    def _runs_there(self) -> "_InferenceService":
        found = list(self.misfits(self.instance_type))
        if self.api_key_secret and self.api_key is None:
            found.append(Fault("api_key", "required with {key.api_key_secret}, the value that this config key holds"))
        if found:
            raise Faults(*found)
        return self


# Builders -----------------------------------------------------------------------------------------------------------


def engine_config(name: str, model: _InferenceService) -> dict[str, Any]:
    """The content of engine.json."""
    path, pod_share = model_path(name), share(model.instance_type, model.gpus)
    return engine_json(
        service=name,
        model_path=path,
        args=engine_args(
            model.engine,
            model.profile,
            model.shape,
            path,
            tensor_parallel=model.tensor_parallel,
            pipeline_parallel=model.pipeline_parallel,
        ),
        adapters=adapter_paths(model.engine, path),
        frontends=frontends(model.engine, model.profile, pod_share.vcpus, pod_share.gpus),
        limits=model.limits,
        max_queued=model.targets(model.instance_type).max_queued,
        budget=drain(model.limits.request_timeout),
        metrics_port=triton.ENGINE_METRICS_PORT,
    )


def bundled_repository() -> dict[str, str]:
    """The model repository that comes with this package."""
    return triton.read_model_repository(Path(str(files("eks_llm") / "model_repository")))


def mounted_files(model: _InferenceService, config: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What each ConfigMap of the pod holds, by its part of the name."""
    if model.runtime is Runtime.OPENAI:
        return {"engine": {"engine.json": dumps(config)}, "drain": openai.middleware()}
    repository = triton.with_frontends(model.model_repository or bundled_repository(), config["frontends"])
    return {"engine": {"engine.json": dumps(config)}, "repository": triton.config_data(repository)}


def server(name: str, model: _InferenceService, config: dict[str, Any], mounted: dict[str, dict[str, str]]) -> Server:
    """What the runtime adds to the pod."""
    maps = {part: config_map_name(name, part, data) for part, data in mounted.items()}
    if model.runtime is Runtime.OPENAI:
        return openai.server(config, maps["drain"], maps["engine"], keyed=model.api_key is not None)
    return triton.server(config, list(mounted["repository"]), maps["repository"], maps["engine"])


def config_hash(
    config: dict[str, Any], mounted: dict[str, dict[str, str]], api_key: pulumi.Input[str] | None
) -> pulumi.Input[str]:
    """Ten digits of a digest of all that a pod reads when it starts. They tell nothing about a random API key."""
    documents = [{"engine.json": dumps(config)}, *mounted.values()]
    if api_key is None:
        return content_hash(*documents)
    digest = pulumi.Output.from_input(api_key).apply(lambda key: content_hash(*documents, {"api-key": key}))
    return pulumi.Output.unsecret(digest)


def workload(name: str, model: _InferenceService) -> tuple[Workload, dict[str, dict[str, str]]]:
    """The service as its objects need it, and the content of its ConfigMaps."""
    config = engine_config(name, model)
    mounted = mounted_files(model, config)
    ending = drain(model.limits.request_timeout)
    work = Workload(
        name=name,
        namespace=model.namespace,
        pool=model.pool,
        weights=model.weights,
        region=model.region,
        share=share(model.instance_type, model.gpus),
        start=start(weights_gib(model.shape, model.quantization), ending, model.node_start),
        drain=ending,
        most_replicas=model.scaling.max,
        priority=model.priority,
        server=server(name, model, config, mounted),
        config_hash=config_hash(config, mounted, model.api_key),
        client_namespaces=model.client_namespaces,
        monitoring_namespace=model.monitoring_namespace,
    )
    return work, mounted


def endpoint(work: Workload, model: _InferenceService) -> Endpoint:
    """What the service offers."""
    server = work.server
    return Endpoint(
        namespace=work.namespace,
        name=work.name,
        pods_name=work.pods_name,
        protocols=("openai",) if model.runtime is Runtime.OPENAI else ("open-inference",),
        ports={port: server.ports[port] for port in server.serving_ports},
        metrics_ports={port: server.ports[port] for port in server.metrics_ports},
        models=(work.name, *model.engine.lora_adapters),
        pod_labels=work.selector,
        metric_labels={"namespace": work.namespace, SERVICE_LABEL: work.name},
        drain_s=work.drain.grace,
        client_namespaces=tuple(work.client_namespaces),
        api_key=None if model.api_key is None else SecretKey(openai.secret_name(work.name), openai.API_KEY),
    )


# Needs --------------------------------------------------------------------------------------------------------------


def needs(name: str, settings: ServiceInputs, context: Context) -> Needs:
    pool = context.pools.get(settings.pool)
    if pool is None:  # a problem of its own, which the platform's rules name
        return Needs()
    asked = Needs(services=(sized(name, settings, pool),))
    if any(settings.misfits(pool.instance_type)):
        return asked
    work, _ = workload(name, _on(settings, pool.instance_type))
    return replace(
        asked,
        policies=(policy(name, settings, pool),),
        findings=tuple(doubts(name, settings, pool)),
        artifacts=images(deployment(work)),
        flows=flows(name, network_policy(work)),
    )


def _on(settings: ServiceInputs, instance_type: str) -> _InferenceService:
    """The service as it is built on nodes of that type. What its pods are told of addresses and secrets is left out."""
    told = {key: value for key, value in settings.args().items() if key != "api_key_secret"}
    return _InferenceService.model_validate(
        {**told, "namespace": settings.namespace, "instance_type": instance_type, "prometheus_url": ""}
    )


# Component ----------------------------------------------------------------------------------------------------------


@answers(ServiceInputs, needs)
class InferenceService(Component):
    """A model on a GPU node pool. All objects are named like the service, in a namespace that exists.

    Pass `depends_on` the releases of KEDA and of the Prometheus operator: they own the custom resources used here.
    """

    CHILDREN = CHILDREN

    url: pulumi.Output[str]
    """HTTP address inside the cluster, for pods of admitted namespaces and labelled ones of the service's own."""

    def __init__(self, name: str, args: InferenceServiceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = InferenceService.checked(_InferenceService, args, name)
        if problem := model.adapter_problem(name):
            raise InvalidArgs(f'InferenceService "{name}"', [Problem("engine.lora_adapters", problem)])
        super().__init__(
            "eks-llm:index:InferenceService", name, component_inputs(model, ServiceInputs), opts, model.customize
        )
        work, mounted = workload(name, model)

        def add(part: str, kind: type[R], manifest: dict[str, Any], *after: pulumi.Resource) -> R:
            # The classes take snake_case at the top, and the manifest's own keys below.
            content = {re.sub("(?=[A-Z])", "_", key).lower(): value for key, value in manifest.items()}
            return kind(f"{name}-{part}", **content, opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)))

        custom = k8s.apiextensions.CustomResource
        self.service_account = add("account", k8s.core.v1.ServiceAccount, service_account(work))
        self.config_maps = {
            part: add(part, k8s.core.v1.ConfigMap, config_map(work, part, data)) for part, data in mounted.items()
        }
        self.api_key_secret: k8s.core.v1.Secret | None = None
        self.priority_class: k8s.scheduling.v1.PriorityClass | None = None
        needed: list[pulumi.Resource] = [self.service_account, *self.config_maps.values()]
        if model.api_key is not None:
            self.api_key_secret = add("api-key", k8s.core.v1.Secret, openai.secret(work, model.api_key))
            needed.append(self.api_key_secret)
        # The policy comes before the pods, so that none is ever open.
        self.network_policy = add("network-policy", k8s.networking.v1.NetworkPolicy, network_policy(work))
        needed.append(self.network_policy)
        if work.priority:
            self.priority_class = add("priority", k8s.scheduling.v1.PriorityClass, priority_class(work))
            needed.append(self.priority_class)
        self.deployment = pods = add("deployment", k8s.apps.v1.Deployment, deployment(work), *needed)
        # Pulumi waits until a Service has endpoints, and gives up long before a pod has loaded its model.
        self.service = add("service", k8s.core.v1.Service, service(work), pods)
        self.headless_service = add("pods", k8s.core.v1.Service, service(work, headless=True), pods)
        self.disruption_budget = add("disruption-budget", k8s.policy.v1.PodDisruptionBudget, disruption_budget(work))
        self.pod_monitor = monitor = add("pod-monitor", custom, pod_monitor(work))
        in_flight = model.targets(model.instance_type).in_flight
        scaled = scaled_object(work, model.scaling, in_flight, model.prometheus_url)
        self.scaled_object = add("scaler", custom, scaled, pods, monitor)
        seen = watched(work, model.slo, model.scaling, in_flight, model.usd_per_gpu_hour)
        self.alerts = add("alerts", custom, service_rules(seen, work.metadata(), model.runbooks))
        board = dashboard_config_map(work.metadata(f"{name}-dashboard"), dashboard(service_board(seen), model.runbooks))
        self.dashboard = add("dashboard", k8s.core.v1.ConfigMap, board)

        self.endpoint = endpoint(work, model)
        """What the service offers: names, ports, protocols, models, and who may call."""
        self.url = pulumi.Output.from_input(self.endpoint.url)
        self.register_outputs({"url": self.url, "endpoint": self.endpoint.as_json()})
