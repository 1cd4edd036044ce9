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
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed: set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[cli,testing,streams,sidecar,spark,sql,plot]' --group dev
	@touch $@

.PHONY: setup
setup: $(READY) system ## install the project and its tools into .venv, and the servers that tests start where there are none

.PHONY: system
system: # looked for each time, unlike what is in .venv: the system's, not ours
	@.ci/system

$(ARCHIVE): $(READY) .ci/spark-archive | system # with it, JVMs of Spark start in half of the time: for runs that start many
	@echo "noting down the classes that Spark loads, once: a minute"
	-@$(PY) .ci/spark-archive $@

.PHONY: test
test: setup ## the tests of every change: fast and waiting ones, then computing ones; they start and stop their servers
	.ci/test $(MEASURED)

LISTS := $(findstring --list,$(PART))
.PHONY: deep
deep: $(READY) $(if $(LISTS),,setup $(ARCHIVE)) ## the deep checks, or a part of them: make deep PART=spark; make deep PART="--since main"; PART=--list
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
sidecar-cases: setup ## generated requests to a sidecar, 10,000 of them: no answer of 5xx (make sidecar-cases CASES=500)
	.ci/sidecar-cases $(CASES)

.PHONY: sidecar-faults
sidecar-faults: setup ## faults between programs and their sidecars, judged by what the programs wrote (make sidecar-faults FAULTS="--runs 20 --dear 5")
	$(PY) integration/sidecar/safety/run.py $(FAULTS)

.PHONY: k8s
k8s: setup ## rollouts on Kubernetes' own controllers, and what each role's move cost (needs Go; make k8s ROLLOUTS="--only surge-3")
	$(PY) integration/kubernetes/run.py $(ROLLOUTS)

.PHONY: coverage
coverage: $(READY) ## the fast tests, with their branch coverage: 100 % of the core, the rest shown
	.ci/unit --whole

.PHONY: worlds
worlds: $(READY) ## every interleaving of small worlds, the large ones too (make worlds WORLDS="there back")
	PYTHONPATH=tests/core $(PY) tests/worlds/run.py $(WORLDS)

.PHONY: mutants
mutants: $(READY) ## break each rule on purpose, and write which test catches it (make mutants MUTANTS=--walks)
	$(PY) tests/core/mutants.py --write $(MUTANTS)

.PHONY: sizes
sizes: $(READY) ## sizes of files and functions, comments, and the words of pages
	$(PY) .ci/style --table

.PHONY: trips
trips: setup ## the files of rink/ that five trips enter, from a role request to a sink's commit
	$(PY) .ci/trips

.PHONY: golden
golden: ## remake the ranks that Go computes and the tests compare ours with (needs Go)
	cd tests/core/golden && go run . ranks.gz

.PHONY: evenness
evenness: $(READY) ## how evenly the schemes spread jobs, and how fast
	$(PY) bench/evenness.py

.PHONY: bench
bench: setup ## how fast, beside its limits and its peers (make bench BENCH="--quick --only handover")
	$(PY) -m pip install --quiet --disable-pip-version-check --group bench
	$(PY) bench/run.py $(BENCH)

.PHONY: demo
demo: setup ## the main job: 336,776 flights shared by three processors through deploy, freeze and kill
	$(PY) examples/flights.py

.PHONY: demo-streams
demo-streams: setup ## the flights as a stream: 16 partitions, three workers, deploy, freeze and kill -9 (make demo-streams DEMO="--quick")
	$(PY) examples/streams.py $(DEMO)

.PHONY: demo-spark
demo-spark: setup $(ARCHIVE) ## the flights through Spark: two drivers, one query; kill -9 and freeze in mid-batch, then a page (DEMO="--quick")
	$(PY) examples/pipeline.py --report build/spark-demo.html $(DEMO)

MINUTES ?= 10
.PHONY: chaos-streams
chaos-streams: setup ## minutes of mishaps for streams, judged from what was processed (make chaos-streams MINUTES=10 SEED=7)
	$(PY) integration/streams/chaos/run.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: fmt
fmt: $(READY) ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix-only --quiet .

.PHONY: lint
lint: $(READY) ## style, and checks of the repository's own texts and of the judges of demos and benches
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(PY) .ci/style
	$(PY) -m pytest -q -n logical --dist loadfile checks

.PHONY: types
types: $(READY) ## mypy --strict, on the library and on what its users see of it; that with pyright, too
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright --pythonpath $(PY)

.PHONY: docs
docs: $(READY) ## draw docs/internals/machines.md from the core's tables
	$(PY) docs/internals/draw_machines.py

.PHONY: proto
proto: ## generate rink/etcd/proto/*_pb2.py from the .proto, with tools in a venv of their own
	# 1.62.3 writes code that runs on protobuf 4 to 7 (make protobuf-majors tries each); newer generators refuse older protobufs.
	tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT \
	&& $(PYTHON) -m venv $$tools \
	&& $$tools/bin/pip install -q 'grpcio-tools==1.62.3' 'mypy-protobuf==3.6.0' 'setuptools<81' \
	&& PATH=$$tools/bin:$$PATH $$tools/bin/python -m grpc_tools.protoc -I. --python_out=. --mypy_out=. \
		rink/etcd/proto/rinketcd.proto

.PHONY: protobuf-majors
protobuf-majors: $(READY) ## the client's tests with each major of protobuf, and with the oldest versions allowed
	.ci/protobuf-majors

.PHONY: redis-clients
redis-clients: setup ## the tests of streams with the oldest redis-py allowed, and with each major
	.ci/redis-clients

.PHONY: pysparks
pysparks: setup ## rink.spark with each release of PySpark, and the table of docs/pyspark.md (make pysparks PYSPARKS="4.0 4.1")
	$(PY) .ci/pysparks $(PYSPARKS)
	$(PY) .ci/pysparks --write

.PHONY: wheel
wheel: $(READY) ## build the wheel, and test it with the source out of the way
	.ci/wheel

.PHONY: ci
ci: ## everything that must pass before a change lands
	.ci/run

.PHONY: clean
clean: ## remove what was built
	rm -rf $(VENV) dist build *.egg-info .mypy_cache .ruff_cache .hypothesis
