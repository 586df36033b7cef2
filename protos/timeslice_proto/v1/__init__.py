# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the messages and services; the modules here are generated from the .proto files beside them."""
