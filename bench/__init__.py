# SPDX-License-Identifier: Apache-2.0
"""How fast the real system is, beside etcd itself: `python -m bench run`, `make bench`. See docs/performance.md."""
