# `make help` lists what there is. Every target does its own set-up; the second time that takes no time.
#
# Set-up makes .venv and stamps in it. .venv/.runtime: the pinned packages that running needs are in.
# .venv/.project: the project is in too, editable; it holds the clone's path, since what pip installs breaks when the
# clone is moved. .venv/.dev: what checking and testing need is in on top. .venv/.docs: what the documents' site needs.

SHELL := /bin/sh
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# No cluster is reached but one that we start. What PYTHONPATH and the like name is none of ours either.
unexport KUBECONFIG KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

TESTS ?= tests/
E2E_TESTS ?= e2e/
E2E_WORKERS ?= 4
# Left out of `make e2e`: what is deployed, tried with the tools of those who deploy it.
DEPLOY_TESTS ?= e2e/deploy
# What says whether another Kubernetes will do.
OTHER_MINORS := $(sort $(patsubst e2e/servers/kubernetes-%,%,$(wildcard e2e/servers/kubernetes-*)))
MINOR_TESTS := $(foreach test,api/contract api/kube_client api/pod_fields api/start api/versions \
faults/fire faults/two_replicas harness/cluster harness/node node/change_of_mode node/device_plugin \
node/device_plugin_health node/device_plugin_ids node/device_plugin_reconcile node/device_plugin_restarts \
node/refused_writes node/unscheduled rights/audit rights/policies rights/rights rights/volume_policy \
scheduling/claims scheduling/openings scheduling/scheduler scheduling/volumes, \
e2e/suites/$(dir $(test))test_$(notdir $(test)).py)
# Changes of our rules that no test sees, at most: each is another way to the same answer (docs/evidence/kube-scheduler.md).
SURVIVORS := 300
PYTHONS := python3 python3.13 python3.12 python3.11 python3.14

# Otherwise .venv is made from nothing, so that no package stays which no requirement names.
usable := $(shell [ "$$(cat .venv/.project 2>/dev/null)" = "$$(pwd -P)" ] && .venv/bin/python -c '' 2>/dev/null && \
! { [ -e .venv/.dev ] && [ requirements/dev.txt -nt .venv/.dev ]; } && echo yes)
ifneq ($(usable),yes)
.PHONY: .venv/.runtime
endif

.PHONY: help demo cluster kind kind-down test test-deploy test-nightly test-gpu bench packing setup check unit e2e binaries format docs docs-site manifests protos lock release version clean

help:
	@echo 'make demo     see a small cluster fill its GPUs, in the terminal (SERVE=8080: in a browser too)'
	@echo 'make cluster  Kubernetes on this machine, two nodes with simulated cards, both programs installed, until Ctrl-C'
	@echo '              (root for the nodes, by sudo; Go >= 1.26.6, gcc, pkg-config, apt-get, openssl)'
	@echo 'make kind     the same in Docker, with the image built here (docker, kind and kubectl); make kind-down ends it'
	@echo 'make test     everything: check, unit, e2e'
	@echo 'make test-deploy  the Helm chart with helm itself, on a real kube-apiserver; alert rules and metrics with'
	@echo '              promtool; packages, images, the documents as a site (needs Go >= 1.26)'
	@echo 'make test-nightly  1,000,000 steps of random histories; 100,000 mutated objects and files;'
	@echo '              hundreds of pods on a real kubelet, restarts at random;'
	@echo '              every fault of docs/evidence/reliability.md at once, for ten minutes (FIRE_SECONDS);'
	@echo '              pods, nodes and namespaces that come and go for 45 minutes (SOAK_MINUTES);'
	@echo '              kube-scheduler asked again, and our rules changed one operator at a time; other Kubernetes'
	@echo 'make test-gpu  the driver and CUDA of a machine with a real NVIDIA card, in five minutes, without Kubernetes;'
	@echo '              the report is build/test-gpu/report.md'
	@echo 'make check    format, lint, types, imports'
	@echo 'make unit     tests that need no cluster, on all cores        (TESTS=tests/… for some)'
	@echo 'make e2e      tests on a real kube-apiserver    (E2E_TESTS=e2e/… for some; needs Go >= 1.26)'
	@echo '              and a kubelet: root, Go >= 1.26.6, gcc, pkg-config, apt-get; skipped with a line without them'
	@echo '              (E2E_KUBERNETES=1.34 for those that e2e/servers/kubernetes-1.34 pins; E2E_WORKERS=1 for one after another)'
	@echo 'make bench    measure speed and memory on a real kube-apiserver (needs Go >= 1.26)'
	@echo 'make packing  how full the cards get with BestFit, FGD, the default profile and the policy fragmentation'
	@echo '              on the trace in OPENB=FOLDER (docs/evidence/packing.md; CONFIGS="NAME=FILE …" for other configurations)'
	@echo 'make format   rewrite the sources as the format check wants them'
	@echo 'make docs     rewrite the generated parts of docs/'
	@echo 'make docs-site  the documents as a site, in build/site/html; a link that leads nowhere is a failure'
	@echo 'make manifests  render deploy/manifests and deploy/optional from the chart (needs Go >= 1.26)'
	@echo 'make protos   rewrite the generated code of the kubelet interfaces'
	@echo 'make lock     pin the newest versions that requirements/*.in allow'
	@echo 'make release  what is published of this commit, in dist/: packages, chart, krew archives, image, checksums'
	@echo '              (URL=https://… where the archives will lie; needs Go >= 1.26, and root for the image)'
	@echo 'make version  write VERSION=1.2.3 wherever the version stands; without it, list where it differs'
	@echo 'make clean    remove what make made in this clone'
	@echo 'PYTHON=/path/to/python3 chooses the Python, 3.11 or newer, that .venv is made of.'

demo: .venv/.project
	@.venv/bin/gpushare-scheduler demo$(if $(SERVE), --serve $(SERVE))

cluster: .venv/.project
	@.venv/bin/python -m e2e.local_cluster up

kind:
	@e2e/kind/up.sh

kind-down:
	@e2e/kind/down.sh

# One after the other: both keep two cores busy, and tests that are starved time out. Both run, and either can fail.
test: check
	@status=0; $(MAKE) --no-print-directory unit || status=1; $(MAKE) --no-print-directory e2e || status=1; exit $$status
	@echo 'make test: passed'

check: setup
	@echo '== format';  .venv/bin/ruff format --check .
	@echo '== lint';    .venv/bin/ruff check .
	@echo '== types';   .venv/bin/mypy
	@echo '== imports'; .venv/bin/lint-imports --no-logo

unit: setup
	@echo '== unit and property tests'
	@.venv/bin/python -m pytest -q --numprocesses=auto --maxprocesses=8 --dist=worksteal --durations=10 --budget=unit $(TESTS)

e2e: setup
	@echo '== tests on a real kube-apiserver'
	@if [ "$${E2E_PROVIDER:-local}" != local ]; then .venv/bin/python -m pytest -q $(E2E_TESTS); \
	elif go=$$($(go_1_26)); then $(build_servers) && \
	.venv/bin/python -m pytest -q --numprocesses=$(E2E_WORKERS) --durations=10 --budget=e2e --ignore=e2e/deploy $(E2E_TESTS); \
	else echo "skipped: $(E2E_TESTS), the tests on a real kube-apiserver: they need Go >= 1.26 and $$go$${CI:+; \
	CI is set, so this is a failure}"; [ -z "$$CI" ]; fi

test-deploy: setup .venv/.docs
	@echo '== what is deployed'
	@if go=$$($(go_1_26)); then .venv/bin/python -m pytest -q --numprocesses=3 --dist=loadfile --no-loadscope-reorder \
	--durations=10 $(DEPLOY_TESTS); \
	else echo "skipped: $(DEPLOY_TESTS), the tests of what is deployed: they need Go >= 1.26 and $$go$${CI:+; \
	CI is set, so this is a failure}"; [ -z "$$CI" ]; fi

test-nightly: setup
	@go=$$($(go_1_26)) || { echo "test-nightly needs Go >= 1.26, and $$go"; exit 1; }
	@$(build_servers)
	@.venv/bin/python -m tests.system.histories.nightly
	@.venv/bin/python -m tests.fuzz.nightly
	@.venv/bin/python -m pytest -q --numprocesses=auto --nightly tests/
	@.venv/bin/python -m pytest -q --numprocesses=auto --hypothesis-profile=nightly -m hypothesis tests/
	@echo '== differential test: kube-scheduler asked again, and our rules changed one operator at a time'
	@.venv/bin/python -m tests.differential.record --check
	@CI=true .venv/bin/mutmut run
	@.venv/bin/mutmut results; [ "$$(.venv/bin/mutmut results | grep -c survived)" -le $(SURVIVORS) ]
	@CI=true .venv/bin/python -m pytest -q -s --nightly --ignore=e2e/deploy $(E2E_TESTS)
	@echo '== what is deployed: the image again, Kueue with the Jobs of docs/working-with.md, how fast the page is'
	@CI=true .venv/bin/python -m pytest -q -s --nightly $(DEPLOY_TESTS)
	@for minor in $(OTHER_MINORS); do \
	echo "== the same programs with Kubernetes $$minor"; \
	export E2E_KUBERNETES=$$minor CI=true; \
	.venv/bin/python -m e2e.control_plane.binaries && .venv/bin/python -m pytest -q $(MINOR_TESTS) || exit 1; \
	done

# A machine with a real card and nothing else.
test-gpu: .venv/.project
	@.venv/bin/python -m tests.gpu

bench: setup
	@go=$$($(go_1_26)) || { echo "bench needs Go >= 1.26, and $$go"; exit 1; }
	@$(MAKE) --no-print-directory binaries
	@.venv/bin/python -m e2e.bench.engine
	@.venv/bin/python -m e2e.bench.waiting
	@.venv/bin/python -m e2e.bench.plugin
	@.venv/bin/python -m e2e.bench.arrivals
	@.venv/bin/python -m e2e.bench.gangs
	@.venv/bin/python -m e2e.bench.full_start
	@.venv/bin/python -m e2e.bench.long_backlog
	@.venv/bin/python -m e2e.bench

packing: setup
	@[ -n "$(OPENB)" ] || { echo 'make packing OPENB=FOLDER: the folder with the trace, see docs/evidence/packing.md'; exit 1; }
	@.venv/bin/python -m e2e.packing "$(OPENB)" $(foreach config,$(CONFIGS),--config $(config))

binaries: setup
	@$(build_servers)

format: setup
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

docs: setup
	@.venv/bin/python -m tests.support.documents.generated

docs-site: setup .venv/.docs
	@.venv/bin/python -m tests.support.documents.documents_site

manifests: setup
	@.venv/bin/python -m e2e.deploy.chart.rendered

protos: setup
	@.venv/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. deviceplugin/kubelet/v1beta1/*.proto

lock: setup
	@$(call lock,runtime)
	@$(call lock,build)
	@$(call lock,image)
	@$(call lock,dev)
	@$(call lock,docs)

release: setup
	@go=$$($(go_1_26)) || { echo "make release needs Go >= 1.26, and $$go"; exit 1; }
	@.venv/bin/python -m e2e.release$(if $(URL), --url $(URL))

version: setup
	@.venv/bin/python -m e2e.release.version $(VERSION)

clean:
	rm -rf .venv build dist mutants *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: .venv/.project .venv/.dev

.venv/.dev: .venv/.runtime requirements/dev.txt
	@echo 'set-up: what checking and testing need'
	@$(call install,requirements/dev.txt)
	@touch $@

.venv/.docs: .venv/.dev requirements/docs.txt
	@echo 'set-up: what the site of the documents is made with'
	@$(call install,requirements/docs.txt)
	@touch $@

.venv/.project: .venv/.runtime pyproject.toml requirements/runtime.in
	@echo 'set-up: gpushare-scheduler itself, editable'
	@$(pip) install --quiet --no-deps --no-build-isolation --editable .
	@pwd -P >$@

.venv/.runtime: requirements/runtime.txt requirements/build.txt
	@python=$$($(choose_python)) || { echo "set-up: $$python" >&2; exit 1; }; \
	echo "set-up: .venv, from $$python ($$("$$python" --version))"; \
	"$$python" -m venv --clear .venv
	@echo "set-up: $$(cat $^ | grep -c '^[a-z].*==') pinned packages"
	@$(call install,requirements/runtime.txt -r requirements/build.txt)
	@touch $@

pip := .venv/bin/python -m pip --disable-pip-version-check --no-input

# A line for each package while pip fetches them; pip's errors come through, and so does its exit status. Nothing is
# compiled in advance: most modules of these packages are never imported.
define install
rm -f .venv/.failed; \
{ $(pip) install --progress-bar off --no-compile --require-hashes -r $(1) || touch .venv/.failed; } | \
while read -r word package rest; do case $$word in \
Collecting) n=$$((n + 1)); echo "    $$n $$package";; \
Installing) echo "    unpacking";; \
esac; done; \
[ ! -e .venv/.failed ]
endef

# Prints the Python to use. When there is none: prints what is missing instead, and fails.
define choose_python
missing="Python >= 3.11 is needed and $${PYTHON:-none of $(PYTHONS)} is $${PYTHON:+not }one: \
install it, or name it with PYTHON=/path/to/python3"; \
for python in "$${PYTHON:-python3}" $(if $(PYTHON),,$(PYTHONS)); do \
"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
"$$python" -c 'import ensurepip, venv' 2>/dev/null && { command -v "$$python"; exit 0; }; \
missing="the venv module of $$python is missing: install it (Debian, Ubuntu: apt install python3-venv)"; \
done; echo "$$missing"; exit 1
endef

# Succeeds if Go is there and new enough; else prints what is the case instead, and fails.
define go_1_26
version=$$(go env GOVERSION 2>/dev/null) || { echo 'there is no go on PATH'; exit 1; }; \
echo "go on PATH is $$version"; \
.venv/bin/python -c 'import re, sys; v = re.search(r"go(\d+)\.(\d+)", sys.argv[1]); \
sys.exit(v is None or (int(v[1]), int(v[2])) < (1, 26))' "$$version"
endef

build_servers = echo '== Kubernetes servers: build, or take those of the last build'; \
.venv/bin/python -m e2e.control_plane.binaries

lock = .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
--custom-compile-command 'make lock' --output-file requirements/$(1).txt requirements/$(1).in
