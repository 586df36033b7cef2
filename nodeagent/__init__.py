# SPDX-License-Identifier: Apache-2.0
"""The node's side of a switch: carry out directives, own the accelerators, acknowledge."""
