# Triton with vLLM, and this repository's model repository inside, for clusters that do not mount it from ConfigMaps.
#
#   docker build -f images/triton.Dockerfile --build-arg BASE=nvcr.io/nvidia/tritonserver@sha256:… -t … .
#
# BASE by digest: the tag is what components/eks_llm/catalog/images.yaml names (26.08: vLLM 0.27.1, CUDA 13.4.1, driver
# 580 or newer, see docs/images.md). A tag can be moved; a digest cannot.
ARG BASE=nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3
FROM ${BASE}

LABEL org.opencontainers.image.title="eks-llm Triton + vLLM" \
      org.opencontainers.image.source="https://github.com/example/eks-llm"

# The build fails where the base image's vLLM is not the one that the model repository is written for.
COPY model_repository/requirements.txt /opt/eks-llm/requirements.txt
RUN wanted=$(sed -n 's/^vllm==//p' /opt/eks-llm/requirements.txt) && \
    found=$(python3 -c 'from importlib.metadata import version; print(version("vllm").split("+")[0])') && \
    if [ "$wanted" != "$found" ]; then echo "base image has vLLM $found, model repository wants $wanted" >&2; exit 1; fi

COPY model_repository/llm /models-repo/llm
COPY model_repository/vllm_model /models-repo/vllm_model

# Not root; nothing is written outside /dev/shm (EKS_LLM_RUN_DIR), /tmp and the cache folders of the pod.
USER 1000:1000
ENV LC_ALL=C.UTF-8 VLLM_WORKER_MULTIPROC_METHOD=spawn VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
EXPOSE 8000 8001 8002 8003

# `docker run --gpus all IMAGE self-test` says whether image, driver, engine.json and weights fit each other.
COPY --chmod=755 images/self-test /usr/local/bin/self-test

# The base image's entrypoint stays: it sets up CUDA's forward-compatibility libraries.
CMD ["tritonserver", "--model-repository=/models-repo"]
