#!/usr/bin/env bash
# On a machine with a GPU: makes an environment of the layout that embedded/serving_env.py describes, from three parts.
#   usage: prepare.sh SITE TRITON ENVIRONMENT
#   SITE: a folder with vLLM (a CUDA build) and what it needs beside the machine's own torch
#   TRITON: a folder with triton/{bin,backends}, nvidia_pytriton.libs, client/ (tritonclient), numpy1/ (NumPy 1.26)
# The Python backend's stub starts Python isolated, so paths come from a .pth file in a virtualenv that the stub finds on
# PATH. NumPy 1.26 goes first: the stub of tritonserver 2.51 misreads NumPy 2.
set -euo pipefail
site=$(realpath "$1") triton=$(realpath "$2") environment=$3
python3 -m venv --without-pip "$environment"
packages=$(echo "$environment"/lib/python3.*/site-packages)
own=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$triton/numpy1" "$site" "$triton/client" "$own" > "$packages/parts.pth"
mkdir -p "$packages/pytriton"
ln -sfn "$triton/triton" "$packages/pytriton/tritonserver"
ln -sfn "$triton/nvidia_pytriton.libs" "$packages/nvidia_pytriton.libs"
"$environment/bin/python" - <<'PY'
import numpy, torch, tritonclient.grpc, vllm
print("numpy", numpy.__version__, "torch", torch.__version__, "vllm", vllm.__version__, torch.cuda.get_device_name())
PY
