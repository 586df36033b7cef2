# SPDX-License-Identifier: Apache-2.0
"""The messages and services of timeslice."""
