#!/usr/bin/env bash
# The measurements on one GPU, after prepare.sh and models.py: the same load through bare AsyncLLM, `vllm serve` and Triton,
# three engines side by side on the GPU and taking turns.
#   usage: run.sh ENVIRONMENT MODELS OUT MODEL STREAMS FRONTENDS [OPTION …]     (options go to benchmarks/serving.py)
set -euo pipefail
environment=$1 models=$2 out=$3 model=$4 streams=$5 frontends=$6
shift 6
export EKS_LLM_SERVING_ENV=$environment VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_LOGGING_LEVEL=WARNING PYTHONUNBUFFERED=1
engine='{"gpu_memory_utilization": 0.3, "load_format": "dummy", "max_model_len": 8192, "max_num_seqs": 512,
         "max_num_batched_tokens": 2048, "enable_prefix_caching": false}'
"$environment/bin/python" "$(dirname "$0")/../serving.py" --model "$models/$model" --load reference \
    --concurrency "$streams" --frontends "$frontends" --clients 4 --engine "$engine" \
    --output "$out/$model-$streams-$frontends.json" "$@"
