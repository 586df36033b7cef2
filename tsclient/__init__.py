# SPDX-License-Identifier: Apache-2.0
"""The client library: acquire, yield and heartbeat. It knows gRPC and nothing of etcd."""
