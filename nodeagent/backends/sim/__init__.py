# SPDX-License-Identifier: Apache-2.0
"""A simulated device: a process that behaves like an accelerator under ``cuda-checkpoint``, with real
bytes."""
