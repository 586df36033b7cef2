# SPDX-License-Identifier: Apache-2.0
"""`python -m coordinator`: the same as `timeslice coordinator`."""

import sys

from coordinator.command import main

sys.exit(main())
