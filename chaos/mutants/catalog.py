# SPDX-License-Identifier: Apache-2.0
"""All planted bugs, in the order in which data flows."""

from __future__ import annotations

from chaos.mutants.in_agents import AGENTS
from chaos.mutants.in_clients import CLIENTS
from chaos.mutants.in_decisions import DECISIONS
from chaos.mutants.in_drops import DROPS
from chaos.mutants.in_failures import DEVICE_FAILURES, STORE_FAILURES
from chaos.mutants.in_ledger import LEDGER
from chaos.mutants.in_replicas import REPLICAS
from chaos.mutants.mutant import Mutant

ALL: tuple[Mutant, ...] = (*CLIENTS, *DECISIONS, *DROPS, *LEDGER, *AGENTS, *REPLICAS, *STORE_FAILURES, *DEVICE_FAILURES)
"""Their names are unique."""
