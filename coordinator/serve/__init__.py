# SPDX-License-Identifier: Apache-2.0
"""The coordinator's gRPC face: sessions, acquires and administration, for any client at any replica."""
