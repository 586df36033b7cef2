# SPDX-License-Identifier: Apache-2.0
"""CUDA processes moved whole by the NVIDIA driver: `cuCheckpointProcess*` for the moving, NVML for the accounts."""
