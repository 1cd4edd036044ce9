# Everything a fresh machine needs is installed into .venv by these targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell .ci/python)
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
ARCHIVE := $(VENV)/spark.jsa

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) \
	| awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null \
	|| { echo "Python 3.11 or later is needed: set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "$(PYTHON) is older than 3.11: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(PY) -m pip install --quiet --disable-pip-version-check --group dev \
		--editable '.[cli,testing,streams,sidecar,spark,sql,plot]'
	@touch $@

.PHONY: setup
setup: $(READY) system ## install the project into .venv, and missing servers for the tests

.PHONY: system
system: # checked each time, unlike .venv: these packages are the system's, not ours
	@.ci/system

# With this archive, JVMs of Spark start in half of the time. It is for runs that start many JVMs.
$(ARCHIVE): $(READY) .ci/spark-archive | system
	@echo "writing the archive of Spark's classes, once; this takes a minute"
	-@$(PY) .ci/spark-archive $@

.PHONY: test
test: setup ## the tests of every change, which start and stop their own servers
	.ci/test $(MEASURED)

LISTS := $(findstring --list,$(PART))
.PHONY: deep
deep: $(READY) $(if $(LISTS),,setup $(ARCHIVE)) ## the deep checks, or some: PART="--since main"
	$(if $(LISTS),,$(PY) -m pip install --quiet --disable-pip-version-check --group bench)
	$(PY) .ci/deep $(PART)

.PHONY: unit
unit: $(READY) ## the fast tests (no server, no sleep)
	.ci/unit

.PHONY: integration
integration: setup ## the tests on real servers: etcd, Redis, PostgreSQL, Spark
	.ci/integration

.PHONY: faults
faults: setup ## faults on real servers and processes, and the table of what they did
	$(PY) -m pytest -m "" integration/faults

.PHONY: sidecar-cases
sidecar-cases: setup ## 10,000 generated requests to a sidecar: no answer of 5xx (CASES=500)
	.ci/sidecar-cases $(CASES)

.PHONY: sidecar-faults
sidecar-faults: setup ## faults between programs and sidecars (FAULTS="--runs 20 --dear 5")
	$(PY) integration/sidecar/safety/run.py $(FAULTS)

.PHONY: k8s
k8s: setup ## rollouts on Kubernetes' own controllers (needs Go; ROLLOUTS="--only surge-3")
	$(PY) integration/kubernetes/run.py $(ROLLOUTS)

.PHONY: coverage
coverage: $(READY) ## the fast tests, with their branch coverage: 100 % of the core, the rest shown
	.ci/unit --whole

.PHONY: worlds
worlds: $(READY) ## every interleaving of small worlds, the large ones too (WORLDS="there back")
	PYTHONPATH=tests/core $(PY) tests/worlds/run.py $(WORLDS)

.PHONY: mutants
mutants: $(READY) ## break each rule on purpose; write which test catches it (MUTANTS=--walks)
	$(PY) tests/core/mutants.py --write $(MUTANTS)

.PHONY: sizes
sizes: $(READY) ## sizes of files and functions, comments, and the words of pages
	$(PY) .ci/style --table

.PHONY: trips
trips: setup ## the files of rink/ that five trips enter, from a role request to a sink's commit
	$(PY) .ci/trips

.PHONY: golden
golden: ## remake Go's ranks, with which the tests compare ours (needs Go)
	cd tests/core/golden && go run . ranks.gz

.PHONY: evenness
evenness: $(READY) ## how evenly the schemes spread jobs, and how fast
	$(PY) bench/evenness.py

.PHONY: bench
bench: setup ## speed, beside its limits and its peers (BENCH="--quick --only handover")
	$(PY) -m pip install --quiet --disable-pip-version-check --group bench
	$(PY) bench/run.py $(BENCH)

.PHONY: demo
demo: setup ## 336,776 flights shared by three processors through deploy, freeze and kill
	$(PY) examples/flights.py

.PHONY: demo-streams
demo-streams: setup ## the flights as a stream through deploy, freeze and kill -9 (DEMO="--quick")
	$(PY) examples/streams.py $(DEMO)

.PHONY: demo-spark
demo-spark: setup $(ARCHIVE) ## the flights through Spark, kill -9 and freeze (DEMO="--quick")
	$(PY) examples/pipeline.py --report build/spark-demo.html $(DEMO)

MINUTES ?= 10
.PHONY: chaos-streams
chaos-streams: setup ## minutes of mishaps for streams (MINUTES=10 SEED=7)
	$(PY) integration/streams/chaos/run.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: fmt
fmt: $(READY) ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix-only --quiet .

.PHONY: lint
lint: $(READY) ## style, and checks of the texts and of the judges of demos and benches
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(PY) .ci/style
	$(PY) -m pytest -q -n logical --dist loadfile checks

.PHONY: types
types: $(READY) ## mypy --strict on the library; mypy and pyright on its public types
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright --pythonpath $(PY)

.PHONY: docs
docs: $(READY) ## draw docs/internals/machines.md from the core's tables
	$(PY) docs/internals/draw_machines.py

.PHONY: proto
proto: ## generate rink/etcd/proto/*_pb2.py from the .proto, with tools in a venv of their own
	# 1.62.3 writes code that runs on protobuf 4 to 7 (make protobuf-majors tries each); newer
	# generators refuse older protobufs.
	tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT \
	&& $(PYTHON) -m venv $$tools \
	&& $$tools/bin/pip install -q 'grpcio-tools==1.62.3' 'setuptools<81' \
	&& $$tools/bin/python -m grpc_tools.protoc \
		-I. --python_out=. --pyi_out=. rink/etcd/proto/rinketcd.proto

.PHONY: protobuf-majors
protobuf-majors: $(READY) ## the client's tests with each major of protobuf, and the oldest one
	.ci/protobuf-majors

.PHONY: redis-clients
redis-clients: setup ## the tests of streams with the oldest redis-py allowed, and with each major
	.ci/redis-clients

.PHONY: pysparks
pysparks: setup ## rink.spark with each release of PySpark, and its table (PYSPARKS="4.0 4.1")
	$(PY) .ci/pysparks $(PYSPARKS)
	$(PY) .ci/pysparks --write

.PHONY: wheel
wheel: $(READY) ## build the wheel, and test it with the source out of the way
	.ci/wheel

.PHONY: ci
ci: ## all checks that must pass before a change lands
	.ci/run

.PHONY: clean
clean: ## remove everything that was built
	rm -rf $(VENV) dist build *.egg-info .mypy_cache .ruff_cache .hypothesis
