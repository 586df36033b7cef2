# SPDX-License-Identifier: Apache-2.0
"""Measurements of the real system on this machine. What they print is relative to etcd itself, in the same run."""
