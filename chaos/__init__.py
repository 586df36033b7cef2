# SPDX-License-Identifier: Apache-2.0
"""Faults, histories, checkers and the explorer: how the promises are tested."""
