#!/bin/bash
# Command of each task of tensorrt_llm_triton.sub.
TRITONSERVER=${TRITONSERVER:-build/release/bin/tritonserver}
MODEL_REPO=${MODEL_REPO:?the model repository}

exec "$TRITONSERVER" --model-repository="$MODEL_REPO" --disable-auto-complete-config \
    --backend-config=python,shm-region-prefix-name=prefix${SLURM_PROCID}_
