# SPDX-License-Identifier: Apache-2.0
"""The stateless replicas: read the ledger, decide, write one guarded transaction."""
