# Triton with a vLLM of your choice, where NVIDIA's image is behind. See docs/images.md before you use it.
#
#   docker build -f images/own-vllm.Dockerfile --build-arg VLLM=0.32.0 -t … .
#
# The plain Triton image has the Python backend but no vLLM, and its CUDA must be at least the one that vLLM's wheel is
# built for. Also set the version in model_repository/requirements.txt and run tests/serving with it.
ARG BASE=nvcr.io/nvidia/tritonserver:26.08-py3
FROM ${BASE}
ARG VLLM
RUN test -n "$VLLM" || { echo "say --build-arg VLLM=<release>" >&2; exit 1; }; \
    python3 -m pip install --no-cache-dir --break-system-packages "vllm==$VLLM"

COPY model_repository/llm /models-repo/llm
COPY model_repository/vllm_model /models-repo/vllm_model
# Fails the build where this vLLM lacks an internal that the model repository uses.
RUN cd /models-repo/llm/1 && python3 -c "import vllm_internals; vllm_internals.probe()"

USER 1000:1000
ENV LC_ALL=C.UTF-8 VLLM_WORKER_MULTIPROC_METHOD=spawn VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
EXPOSE 8000 8001 8002 8003
COPY --chmod=755 images/self-test /usr/local/bin/self-test
CMD ["tritonserver", "--model-repository=/models-repo"]
