# SPDX-License-Identifier: Apache-2.0
"""What tests share: the etcd that they run against, and the account of what ran."""
