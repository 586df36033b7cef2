# SPDX-License-Identifier: Apache-2.0
"""What would be the first limit of a system that fits on no machine here, by what a run of the bench has measured.

``python -m bench.simulation FILE.json``. A discrete-event model, without input or output but for its costs:

    costs.py   what each step costs, out of the figures of a run
    model.py   the simulation: hand-offs and heartbeats through queues
    sizes.py   a system's size, and how busy each part of it is by arithmetic alone
"""
