# SPDX-License-Identifier: Apache-2.0
"""The ledger: what must survive a crash, in etcd."""
