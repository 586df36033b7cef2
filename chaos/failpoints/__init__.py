# SPDX-License-Identifier: Apache-2.0
"""The system's failpoints: which there are, and what becomes of the system when a process dies at each."""
