"""A front end: requests of one Triton instance → the shared engine → responses.

One event loop in a thread of its own, because Triton stops its own loop before `finalize()`. Each request is a task on
it. The path of a token: vLLM's output handler → the task → `ResponseSender.send` (a round trip through shared memory).
Cancellation, deadlines and the drain marker are watched off that path.
"""

import asyncio
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import vllm_internals
from engine_client import EngineConnection
from engine_config import EngineConfig
from pod_state import PodState, RunDirectory
from request_checks import InvalidRequestError, reason
from request_parser import ModelLimits, ParsedRequest, fit, parse
from responses import Answer, Code
from vllm.inputs import TokensPrompt, tokens_input
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.metrics.loggers import StatLoggerBase

logger = logging.getLogger("eks_llm.frontend")
POLL_SECONDS = 0.1
"""How often cancellation and the drain marker are looked for. Each look costs a round trip per stream."""
DRAIN_MARGIN_SECONDS = 2.0
"""Streams that outlast the drain budget are ended this much before Triton would cut them."""
SELF_TEST_SECONDS = 300.0


class OverloadedError(RuntimeError):
    """The queue is full: UNAVAILABLE, with when to try again."""


class FailedError(RuntimeError):
    """The engine ended this request for a reason of its own, such as lost KV blocks: UNAVAILABLE, to be repeated."""


NO_GRAMMAR = (
    "SAMPLING_PARAMETERS.structured_outputs: the grammar's library cannot compile it (a rule or reference that only "
    "leads to itself, or an unknown construct); the log of the engine has its words"
)


class FrontEnd:
    """Front end `index` of `config.frontends`."""

    def __init__(self, config: EngineConfig, directory: RunDirectory, index: int, version: str) -> None:
        self.config, self.directory, self.index, self.version = config, directory, index, version
        self._server_pid = os.getppid()
        self.dead: str | None = None
        self.draining_since: float | None = None
        self._answers: dict[Answer, asyncio.Task[None]] = {}
        self._in_flight = 0
        self._queued_tokens = 0
        self._wait_estimate = 1.0
        self._stopping = threading.Event()
        self._tokenizing = ThreadPoolExecutor(1, "tokenize")
        self._loop = _new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="frontend").start()

    # Life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connects to the engine and proves the whole way with one token. Blocks while the engine loads."""
        connection = EngineConnection(self.directory, self.index, self.version)
        settings = vllm_internals.vllm_config(self.config, self.index)  # while the engine loads
        addresses = connection.wait_ready()
        self._state = PodState(self.directory, self.config.frontends, self.index)
        self._on_loop(self._connect(settings, addresses), SELF_TEST_SECONDS)
        connection.serving(self._engine_lost)
        self._connection = connection
        threading.Thread(target=self._watch, daemon=True, name="watch").start()

    def stop(self) -> None:
        """After Triton has released every request: leaves the engine, which ends when the last front end has left."""
        self._stopping.set()
        self._connection.leave()
        self._loop.call_soon_threadsafe(self._loop.stop)

    @property
    def ready(self) -> bool:
        moving = self._state.totals().step_age <= self.config.stale_seconds
        return self.dead is None and self.draining_since is None and moving

    async def _connect(self, settings: Any, addresses: dict[str, str]) -> None:
        frontends = self.config.frontends
        self._clock = vllm_internals.StepClock()
        self._engine = vllm_internals.connect(
            settings, addresses, frontends, self.index, self._progress_logger, self._clock
        )
        tokenizer = self._engine.get_tokenizer()
        self._encode: Callable[..., list[int]] = tokenizer.encode
        self.limits = ModelLimits(
            max_model_len=settings.model_config.max_model_len,
            vocabulary=settings.model_config.get_vocab_size(),
            longest_token=max(len(token) for token in tokenizer.get_vocab()),
            defaults=settings.model_config.get_diff_sampling_param(),
            lora_adapters=frozenset(self.config.lora_adapters),
            priorities=settings.scheduler_config.policy == "priority",
            request=self.config.requests,
        )
        self._loras = {
            name: LoRARequest(name, number, path)
            for number, (name, path) in enumerate(self.config.lora_adapters.items(), start=1)
        }
        self._capacity = settings.scheduler_config.max_num_seqs
        params = SamplingParams(max_tokens=1, temperature=0, output_kind=RequestOutputKind.FINAL_ONLY)
        prompt = tokens_input([0])
        async for _ in self._engine.generate(prompt, params, f"self-test-{self.index}-{uuid.uuid4()}"):
            pass

    def _progress_logger(self, *_: Any) -> StatLoggerBase:
        """What vLLM calls with the statistics of every step that this front end hears of."""
        state, clock = self._state, self._clock

        class Progress(StatLoggerBase):
            def __init__(self) -> None:
                pass

            def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
                state.set("progress", time.monotonic())
                if scheduler_stats is not None:  # without any output too: the last step of all says that nothing runs
                    state.set("running", scheduler_stats.num_running_reqs)
                    state.set("waiting", scheduler_stats.num_waiting_reqs)
                    state.set("deferred", scheduler_stats.num_skipped_waiting_reqs)
                    state.set("kv_usage", scheduler_stats.kv_cache_usage)
                    state.set("step_at", clock.at)

            def log_engine_initialized(self) -> None:
                pass

        return Progress()

    def _on_loop(self, coroutine: Any, timeout: float) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    # Requests --------------------------------------------------------------------------------------------------------

    def submit(self, tensors: dict[str, Any], parameters: str, timeout_us: int, answer: Answer) -> None:
        """Takes a request from Triton's thread. Every way out of it ends the answer exactly once."""
        try:
            if self.dead:
                answer.fail(Code.UNAVAILABLE, f"this server is going down: {self.dead}")
            elif self.draining_since is not None or self.directory.drain_marker.exists():
                answer.fail(Code.UNAVAILABLE, "this server is shutting down; send the request to another one")
            else:
                request = parse(tensors, parameters, self.limits)
                self._loop.call_soon_threadsafe(self._begin, request, timeout_us, answer)
        except InvalidRequestError as error:
            answer.fail(Code.INVALID_ARG, str(error))
        except Exception as error:  # out of here it would fail every request that Triton passed along with this one
            logger.exception("request failed")
            answer.fail(Code.INTERNAL, reason(error))

    def _begin(self, request: ParsedRequest, timeout_us: int, answer: Answer) -> None:
        seconds = self.config.limits.request_timeout_seconds
        if timeout_us > 0:
            seconds = min(seconds, timeout_us / 1e6)
        task = self._loop.create_task(self._serve(request, seconds, answer))
        self._answers[answer] = task
        task.add_done_callback(lambda _: self._answers.pop(answer))

    async def _serve(self, request: ParsedRequest, seconds: float, answer: Answer) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._generate(request, answer)
        except InvalidRequestError as error:
            answer.fail(Code.INVALID_ARG, str(error))
        except vllm_internals.CLIENT_ERRORS as error:  # vLLM's own checks of a request
            answer.fail(Code.INVALID_ARG, reason(error))
        except (OverloadedError, FailedError) as error:
            answer.fail(Code.UNAVAILABLE, str(error))
        except TimeoutError:
            answer.fail(Code.CANCELLED, f"deadline of {seconds:g} s exceeded after {answer.tokens} tokens")
        except asyncio.CancelledError:
            answer.fail(*(answer.end_reason or (Code.CANCELLED, "cancelled")))
        except EngineGenerateError as error:
            # Grammars are compiled as a request is taken in, by a library of their kind with errors of its own.
            if request.params.structured_outputs is not None and not answer.tokens:
                answer.fail(Code.INVALID_ARG, f"SAMPLING_PARAMETERS.structured_outputs: {reason(error.__cause__)}")
            else:
                logger.exception("request failed")
                answer.fail(Code.INTERNAL, reason(error.__cause__ or error))
        except EngineDeadError:
            answer.fail(Code.UNAVAILABLE, f"the engine died after {answer.tokens} tokens; this server is going down")
        except Exception as error:
            logger.exception("request failed")
            answer.fail(Code.INTERNAL, reason(error))

    async def _generate(self, request: ParsedRequest, answer: Answer) -> None:
        encode = partial(self._encode, request.prompt, add_special_tokens=request.add_special_tokens)
        token_ids = await self._loop.run_in_executor(self._tokenizing, encode)
        fit(request, len(token_ids), self.limits)
        self._check_queue(len(token_ids))
        # vLLM compiles a grammar as it takes a request in; off the loop only if the prompt is still "to be processed".
        prompt = tokens_input(token_ids) if request.params.skip_clone else TokensPrompt(prompt_token_ids=token_ids)
        lora = self._loras[request.lora_name] if request.lora_name else None
        queued, arrived = len(token_ids), time.monotonic()
        self._account(1, queued)
        try:
            outputs = self._engine.generate(
                prompt, request.params, str(uuid.uuid4()), lora_request=lora, priority=request.priority
            )
            answer.begin(request.prompt if not request.exclude_prompt else "", request.stream, len(token_ids))
            async for output in outputs:
                if queued:
                    self._account(0, -queued)
                    queued = 0
                    self._wait_estimate += 0.1 * (time.monotonic() - arrived - self._wait_estimate)
                match output.outputs[0].finish_reason:
                    case None | "stop" | "length":
                        answer.add(output)
                    case "repetition":
                        answer.add(output, "stop")
                    case "abort":
                        raise asyncio.CancelledError
                    case "error" if request.params.structured_outputs is not None and not answer.tokens:
                        raise InvalidRequestError(NO_GRAMMAR)
                    case other:
                        raise FailedError(f"the engine gave the request up ({other}) after {answer.tokens} tokens")
        finally:
            self._account(-1, -queued)

    def _check_queue(self, tokens: int) -> None:
        limits, totals = self.config.limits, self._state.totals()
        retry = f"retry after {max(1, math.ceil(self._wait_estimate))} s"
        if totals.in_flight >= self._capacity + limits.max_queued_requests or (
            totals.waiting + totals.deferred >= limits.max_queued_requests and totals.in_flight >= self._capacity
        ):
            raise OverloadedError(
                f"the queue is full: {totals.in_flight} requests are in flight, the engine runs {self._capacity} "
                f"at most and {limits.max_queued_requests} may wait; {retry}"
            )
        if totals.queued_tokens and totals.queued_tokens + tokens > limits.max_queued_tokens:
            raise OverloadedError(
                f"{totals.queued_tokens} prompt tokens wait (limit {limits.max_queued_tokens}); {retry}"
            )

    def _account(self, requests: int, tokens: int) -> None:
        """Adds to what this front end has in the engine."""
        if requests > 0 and not self._in_flight:
            self._state.set("progress", time.monotonic())  # the engine was not asked for anything until now
        self._in_flight += requests
        self._queued_tokens += tokens
        self._state.set("in_flight", self._in_flight)
        self._state.set("queued_tokens", self._queued_tokens)

    # Off the token path ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Cancelled requests, the drain marker, and the sign that the event loop runs."""
        while not self._stopping.wait(POLL_SECONDS):
            self._loop.call_soon_threadsafe(lambda: self._state.set("heartbeat", time.monotonic()))
            if os.getppid() != self._server_pid:
                os._exit(1)  # tritonserver was killed; its stubs would stay
            self._cancel_all(Code.CANCELLED, "cancelled by the client", Answer.client_gone)
            if self.draining_since is None and self.directory.drain_marker.exists():
                self.draining_since = time.monotonic()
                logger.info("draining: %d requests in flight", len(self._answers))
            if self.draining_since is not None:
                left = self.draining_since + self.config.drain_seconds - DRAIN_MARGIN_SECONDS - time.monotonic()
                if left <= 0:
                    self._cancel_all(
                        Code.UNAVAILABLE,
                        f"this server is shutting down and its drain budget of {self.config.drain_seconds:g} s is over",
                    )

    def _engine_lost(self, reason: str) -> None:
        self.dead = reason
        self._cancel_all(Code.UNAVAILABLE, f"this server is going down: {reason}")

    def _cancel_all(self, code: Code, reason: str, which: Callable[[Answer], bool] = lambda _: True) -> None:
        for answer in list(self._answers):
            if which(answer):
                self._cancel(answer, code, reason)

    def _cancel(self, answer: Answer, code: Code, reason: str) -> None:
        def cancel() -> None:
            task = self._answers.get(answer)
            if task and not answer.end_reason:
                answer.end_reason = (code, reason)
                task.cancel()

        self._loop.call_soon_threadsafe(cancel)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
