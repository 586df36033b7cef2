# SPDX-License-Identifier: Apache-2.0
"""`timeslice dev`: the whole system on this machine, with everything real but the devices."""
