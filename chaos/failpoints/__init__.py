# SPDX-License-Identifier: Apache-2.0
"""Which failpoints the system has."""
