# SPDX-License-Identifier: Apache-2.0
"""The `timeslice` command. Commands of the rest of the system are found by entry point, never imported."""
