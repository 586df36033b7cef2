# SPDX-License-Identifier: Apache-2.0
# One command does everything: `make demo` and `make test` set up what they need and do it once.

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint protos check-protos compat test-client-long test-torch explore explore-pairs mutants chaos-short \
	chaos-kills chaos-failover chaos-rolling chaos-leaders chaos-sessions chaos-mixed chaos-long bench bench-compare \
	requirements clean

PYTHON ?= python3
# The demo's and the tests' own arguments: make test ARGS="tests/ledger -k watch"
ARGS ?=

BIN := .venv/bin
EDITABLE := --editable ./client --editable .
PACKAGES := $(foreach p,ledger coordinator nodeagent tsclient chaos bench,$(if $(wildcard $(p)/__init__.py),-p $(p)))

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: .venv/.installed ## Virtual environment, pinned dependencies, this project, etcd
	@$(BIN)/python deploy/get_etcd.py >/dev/null

demo: setup ## Jobs that share simulated accelerators on this machine for about a minute, all else real
	$(BIN)/timeslice dev $(ARGS)

test: setup ## All tests, against a real etcd
	$(BIN)/python -m pytest $(ARGS)

lint: setup ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES)
	$(BIN)/mypy deploy/get_etcd.py

protos: .venv-protos/.installed ## Generate the code of the .proto files
	.venv-protos/bin/python deploy/generate_protos.py

check-protos: .venv-protos/.installed ## Fail if the committed generated code is not current
	.venv-protos/bin/python deploy/generate_protos.py --check

compat: setup ## The client beside old and new protobuf, grpcio and Python (ARGS=--each: four of the 24)
	$(BIN)/python -m tests.compat.matrix $(ARGS)

test-client-long: setup ## The client's crowds and storms at full length: 1,000 turns in opposite orders, 30 turns a worker
	TIMESLICE_TEST_ROUNDS=10 $(BIN)/python -m pytest tests/tsclient/test_contention.py tests/tsclient/test_storm.py $(ARGS)

test-torch: setup .venv-torch/.installed ## Eight ranks over gloo, by the real PyTorch, in an environment of its own
	TIMESLICE_TORCH_PYTHON=$(CURDIR)/.venv-torch/bin/python $(BIN)/python -m pytest tests/tsclient/test_distributed.py $(ARGS)

explore: setup ## Explore the protocol's states to exhaustion, within bounds
	$(BIN)/python -m chaos.explore $(ARGS)

explore-pairs: setup ## Explore each two faults together, on one node and on two: some thousand models, an hour
	$(BIN)/python -m chaos.explore --pairs --prompt --nodes 1 $(ARGS)
	$(BIN)/python -m chaos.explore --pairs --prompt --nodes 2 --jobs 1 $(ARGS)

mutants: setup ## Plant each known bug in a copy of the tree: each must be noticed, and by what
	$(BIN)/python -m chaos.mutants --write docs/mutants.md $(ARGS)

chaos-short: setup ## A few faults of nearly each scenario, with fixed seeds: two minutes
	$(BIN)/python -m chaos.short $(ARGS)

# The long runs. Each goes on where it was stopped, and counts what is there of the same code; `python -m chaos report`.
CHAOS := $(BIN)/python -m chaos run

chaos-kills: setup ## 50 seeds with replicas killed in a switch, 200 kills of agents, 100 of etcd members: 90 minutes
	$(CHAOS) kill-replica-mid-switch --seeds 1-50 --count 7 $(ARGS)
	$(CHAOS) kill-agent-mid-switch --seeds 1-10 --count 20 $(ARGS)
	$(CHAOS) kill-helper-mid-switch --seeds 1-5 --count 10 $(ARGS)
	$(CHAOS) kill-etcd-leader --seeds 1-10 --count 10 $(ARGS)

chaos-failover: setup ## What a killed and a frozen acting replica add to a switch, 200 and 50 of them: 20 minutes
	$(CHAOS) failover --count 200 $(ARGS)
	$(CHAOS) failover-frozen --count 50 $(ARGS)

chaos-rolling: setup ## Replicas restarted one after the other under load, 150 times: 6 minutes
	$(CHAOS) rolling-restart --count 150 $(ARGS)

chaos-leaders: setup ## Dead holders while etcd's leader changes every half TTL, 10 of them: 2 minutes
	$(CHAOS) leader-changes --count 10 $(ARGS)

chaos-sessions: setup ## 10,000 sessions come and go, and what of them stays: 16 minutes
	$(CHAOS) sessions --count 10000 --minutes 15 $(ARGS)

chaos-mixed: setup ## All faults at random, alone and two at once: 30 minutes
	$(CHAOS) mixed --minutes 30 $(ARGS)

chaos-long: chaos-kills chaos-failover chaos-rolling chaos-leaders chaos-sessions chaos-mixed ## All long runs: 3 hours

bench: setup ## How fast the system is beside etcd itself, as a table (ARGS="--quick"; a b d …: some parts; --json FILE)
	$(BIN)/python -m bench run $(ARGS)

bench-compare: setup ## Measure again beside an earlier run: make bench-compare BASE=before.json
	$(BIN)/python -m bench run --json build/bench.json $(ARGS)
	$(BIN)/python -m bench compare $(BASE) build/bench.json

requirements: ## Resolve requirements/*.in into the pinned *.txt
	PYTHON=$(PYTHON) deploy/pin_requirements.sh

clean: ## Remove all that was made here
	rm -rf .venv .venv-protos .venv-torch .tools build dist client/build *.egg-info client/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than what it was made from, so a changed pin brings its environment up to date.
.venv/.installed: requirements/dev.txt pyproject.toml client/pyproject.toml deploy/make_venv.sh
	PYTHON=$(PYTHON) deploy/make_venv.sh .venv requirements/dev.txt
	# What a wheel built in the tree has left hides the entry points of what is installed.
	rm -rf *.egg-info client/*.egg-info
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(EDITABLE)
	$(BIN)/pip check
	@touch $@

.venv-torch/.installed: requirements/torch.txt client/pyproject.toml
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/pip install --quiet --disable-pip-version-check --requirement requirements/torch.txt ./client
	@touch $@

.venv-protos/.installed: requirements/protos.txt deploy/make_venv.sh
	PYTHON=$(PYTHON) deploy/make_venv.sh .venv-protos requirements/protos.txt
	@touch $@
