# Everything a change must pass is `make test`; `make demo` shows the product on a cluster that it makes itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The local cluster: see test/cluster/README.md.
export CLUSTER ?= afloat
export NODES ?= $(shell [ "$$(id -u)" = 0 ] && echo 2 || echo 0)
export SIMULATED ?= $(shell [ "$$(id -u)" = 0 ] && echo 0 || echo 20)
export K8S_VERSION ?= v1.36.3
IMAGE ?= afloat/manager:dev
DAEMON_IMAGE ?= afloat/daemon:dev
LDFLAGS := -s -w
# grpc's traces are not used, and the templates of their pages keep the linker from leaving out methods that nothing calls: 20 MB of the manager.
TAGS := grpcnotrace
# With cgo, a binary that can load plugins of kustomize keeps all that they might call: its tests take a third less CPU without.
UNPLUGGED := kustomize_disable_go_plugin_support
SIM ?= 2000
cluster := bin/afloat-cluster

# Everything is built the way that images need it, so that libraries are compiled once; the race detector alone needs cgo.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

##: Development

.PHONY: generate
generate: ## Write deep copies, CRDs, RBAC roles and the API reference
	@hack/generate.sh

.PHONY: site
site: site/node_modules ## Build the documentation as a site into bin/site: SITE_BASE=/afloat/, SITE_REPOSITORY=https://<where files are>/; needs Node.js 20 and npm
	@cd site && npm run --silent build

.PHONY: site-serve
site-serve: site/node_modules ## Show the documentation on this machine while it is being written
	@cd site && npm run --silent dev

site/node_modules: site/package-lock.json
	@cd site && npm ci --loglevel=error && touch node_modules

.PHONY: lint
lint: ## Check formatting, imports between layers, and common mistakes
	@hack/lint.sh

GOVULNCHECK ?= v1.9.0

.PHONY: vulnerabilities
vulnerabilities: ## Ask the vulnerability database of Go about what is released and what releases it; needs a network
	@for module in . hack/release; do (cd $$module && go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) ./...) || exit 1; done

.PHONY: spec-coverage
spec-coverage: ## Count the requirements that tests cite; SPEC="CS IPU" lists those that none cites
	@go run ./hack/speccoverage $(SPEC)

.PHONY: spec-check
spec-check: ## Fail if fewer requirements of what is built are tested than were, or docs/spec/README.md is not true any more
	@go run ./hack/speccoverage -check

.PHONY: mutate
mutate: ## Break the code in small ways and look whether tests see it: MINUTES=90, PACKAGES="engine/rollout node/restart", FILES=scale.go
	@hack/mutate.sh

.PHONY: fuzz
fuzz: ## Play every fuzz target for TIME=10m, and keep what fails as a test: TARGET=FuzzWebhooks, PACKAGE=engine/inplace, JOBS=1, WORKERS=2, REPORT=docs/quality/fuzzing.md
	@hack/fuzz.sh

.PHONY: test
test: ## Everything a change must pass
	@hack/test.sh

.PHONY: test-unit
test-unit: ## Unit tests with the race detector, and SIM=2000 simulations of each kind, fewer of those that take long
	go vet ./...
	SIM=10 CGO_ENABLED=1 go test -race -vet=off -tags $(UNPLUGGED) -timeout 20m ./...
	@hack/alone.sh
	SIM=$(SIM) GOGC=1000 go test -vet=off -count=1 -timeout 2h -run 'TestSimulated' ./internal/kinds/... ./internal/podfeatures/... ./internal/registry

.PHONY: simulate
simulate: ## Hours of simulations: RUNS=100000 of each kind; a failure prints its seed, and SEED=7 with go test plays it again
	SIM=$(or $(RUNS),100000) GOGC=2000 go test -p 1 -count=1 -timeout 24h -run '^TestSimulated' ./internal/...

.PHONY: test-integration
test-integration: $(cluster) ## Tests against a real API server
	KUBEBUILDER_ASSETS="$$($(cluster) binaries --envtest | tail -n 1)" go test $(if $(VERBOSE),-v) -p 2 -tags integration -count=1 -timeout 20m ./test/integration/... ./cmd/manager/...

.PHONY: test-takeover
test-takeover: $(cluster) ## Takeovers from what each release of OpenKruise installs, interrupted at every step and twice at once, against a real API server
	EVERY_RELEASE=1 KUBEBUILDER_ASSETS="$$($(cluster) binaries --envtest | tail -n 1)" \
	  go test -tags integration -count=1 -timeout 40m ./test/integration/takeover/...

on-cluster = KUBECONFIG="$$($(cluster) kubeconfig)" AUDIT_LOG="$$($(cluster) audit)" VOLUMES="$$($(cluster) volumes)" \
  KUBECTL="$$($(cluster) binaries --envtest | tail -n 1)/kubectl" PLUGIN=$(CURDIR)/bin HELM=$(CURDIR)/bin/helm \
  go test -tags e2e -count=1 -v -timeout 60m -parallel 4 $(if $(RUN),-run "$(RUN)")

test-e2e test-docs: export CSI := 1
# Some tests and pages of the manual need three nodes.
test-e2e test-docs: export NODES := 3
test-e2e test-docs: MANIFESTS := test/e2e/manifests

.PHONY: test-e2e
test-e2e: local-deploy bin/helm ## Tests against real kubelets, with the shipped manifests; RUN=Partition for some
	@hack/dashboard.sh browser
	$(on-cluster) ./test/e2e/...

.PHONY: test-versions
test-versions: $(cluster) bin/helm ## End-to-end tests on each version of Kubernetes, hours: VERSIONS="v1.32.13 v1.37.1" for some; writes docs/quality/versions.md
	@hack/versions.sh $(VERSIONS)

.PHONY: perf-probes
perf-probes: export MEASURE := 1
perf-probes: export CSI := 1
perf-probes: MANIFESTS := test/e2e/manifests
perf-probes: local-deploy bin/helm ## What 1,000 probes of PodProbeMarkers cost a node daemon, on real kubelets; five minutes
	$(on-cluster) -run TestAThousandProbes ./test/e2e/...

.PHONY: failover
failover: export FAILOVER_REPORT := $(or $(REPORT),$(CURDIR)/docs/quality/failover.md)
failover: MANIFESTS := test/e2e/manifests
failover: local-deploy bin/helm ## How long rollouts pause when the leader ends, on real kubelets; a quarter of an hour; writes docs/quality/failover.md
	@mkdir -p docs/quality
	$(on-cluster) -run TestFailover ./test/e2e/...

.PHONY: soak
soak: ## Six simulated days of each kind with one manager: memory is flat, and nothing is written at rest; writes docs/quality/soak.md; a quarter of an hour
	@mkdir -p docs/quality
	@hack/soak.sh

.PHONY: test-docs
test-docs: local-deploy bin/helm ## Run the pages of the manual on real kubelets; RUN=TestManual/cloneset for one, SHARE=1/3 for a part
	$(on-cluster) ./test/docs/...

.PHONY: test-chart
test-chart: ## Tests of the Helm chart: against the manifests, and value by value
	go -C test/chart vet ./...
	go -C test/chart test -count=1 ./... # go does not see that files outside of the module have changed

.PHONY: perf
perf: build $(cluster) ## Measure speed, writes, CPU and memory: SCENARIO="cloneset-1000 rest", by default what takes about 20 minutes together
	@test/perf/perf.sh $(or $(SCENARIO),planner ceiling cloneset-100 cloneset-1000 budget-1000 rest admission)

.PHONY: tenants
tenants: $(cluster) ## Play attacks of one tenant on the manager while another one rolls out, and write what they cost to docs/quality/tenants.md; half an hour
	EVERY_ATTACK=1 TENANTS_REPORT=$(CURDIR)/docs/quality/tenants.md KUBEBUILDER_ASSETS="$$($(cluster) binaries --envtest | tail -n 1)" \
	  go test -tags integration -count=1 -v -timeout 60m $(if $(RUN),-run "$(RUN)") ./test/integration/tenants/...

.PHONY: robustness
robustness: export REAL_NODES := $(if $(filter file,$(origin NODES)),0,$(NODES))
robustness: build $(cluster) ## Rollouts of all kinds while faults are injected, recorded and judged: TIME=1h, SEED= repeats a choice, FAULTS=0 for rollouts alone, NODES=2 for real kubelets, REPORT=1 writes docs/quality/robustness.md; needs root
	@test/robustness/robustness.sh

##: Local cluster

$(cluster): $(shell find test/cluster -type f 2>/dev/null)
	@mkdir -p bin
	@go -C test/cluster build -trimpath=false -o ../../$(cluster) .

.PHONY: cluster-up
cluster-up: $(cluster) ## Start the local cluster: NODES=2, SIMULATED=20, K8S_VERSION=v1.36.3, CLUSTER=afloat, CSI=1
	@$(cluster) up

.PHONY: cluster-down
cluster-down: $(cluster) ## Stop the local cluster and leave nothing behind
	@$(cluster) down

.PHONY: demo
demo: local-deploy ## Watch real containers being updated in place
	@KUBECONFIG="$$($(cluster) kubeconfig)" go run ./test/demo

.PHONY: demo-down
demo-down: cluster-down ## Remove what the demo made

##: Installing

.PHONY: build
build: plugin ## Build the manager, the node daemon and the kubectl plugin into bin/
	go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/manager ./cmd/manager
	go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/daemon ./cmd/daemon

.PHONY: plugin
plugin: ## Build the kubectl plugin into bin/; with bin/ in PATH it is kubectl afloat, and kubectl kruise
	go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/kubectl-afloat ./cmd/kubectl-afloat
	@ln -sf kubectl-afloat bin/kubectl-kruise

.PHONY: dashboard
dashboard: ## Bundle the page of kubectl afloat dashboard, which is committed; needs Node.js 20 and npm
	@hack/dashboard.sh build

.PHONY: test-dashboard
test-dashboard: ## Test the page of kubectl afloat dashboard, also in a browser if Chromium can be installed
	@hack/dashboard.sh check

.PHONY: generator
generator: ## Build the function of kustomize that makes ResourceDistributions into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/resourcedistribution-generator ./cmd/resourcedistribution-generator

.PHONY: image
image: build $(cluster) ## Build the images without Docker and push them to the local cluster's registry
	@$(cluster) image build --name $(IMAGE) --binary bin/manager=/manager --entrypoint /manager --user 65534
	@$(cluster) image build --name $(DAEMON_IMAGE) --binary bin/daemon=/daemon --entrypoint /daemon --user 0

.PHONY: image-archives
image-archives: build $(cluster) ## Write the images IMAGE= and DAEMON_IMAGE= as bin/manager.tar and bin/daemon.tar, without Docker, for any cluster
	@$(cluster) image build --archive bin/manager.tar --name $(IMAGE) --binary bin/manager=/manager --entrypoint /manager --user 65534
	@$(cluster) image build --archive bin/daemon.tar --name $(DAEMON_IMAGE) --binary bin/daemon=/daemon --entrypoint /daemon --user 0
	@echo "bin/manager.tar is $(IMAGE), bin/daemon.tar is $(DAEMON_IMAGE)"

MANIFESTS ?= config/default
# A cluster is changed only if the command names it: KUBECONFIG is exported for many a cluster.
named = [ "$(origin KUBECONFIG)" = "command line" ] || { echo "Say which cluster is meant: make $@ KUBECONFIG=<file>. For the local one: make local-$@" >&2; exit 2; }

.PHONY: deploy
deploy: ## Install into the cluster of KUBECONFIG=<file>: IMAGE=, DAEMON_IMAGE=, and MANIFESTS=config/default or config/external-certs
	@$(named)
	@KUBECONFIG=$(KUBECONFIG) IMAGE=$(IMAGE) DAEMON_IMAGE=$(DAEMON_IMAGE) MANIFESTS=$(MANIFESTS) hack/deploy.sh

.PHONY: undeploy
undeploy: ## Remove from the cluster of KUBECONFIG=<file> what deploy installed; CloneSets and their pods stay
	@$(named)
	@KUBECONFIG=$(KUBECONFIG) hack/undeploy.sh

.PHONY: local-deploy
local-deploy: cluster-up image ## Install what is built here into the local cluster
	@KUBECONFIG="$$($(cluster) kubeconfig)" IMAGE=$(IMAGE) DAEMON_IMAGE=$(DAEMON_IMAGE) MANIFESTS=$(MANIFESTS) hack/deploy.sh

bin/helm: test/chart/go.mod
	@mkdir -p bin
	@go -C test/chart build -ldflags '-s -w' -o ../../bin/helm helm.sh/helm/v4/cmd/helm

.PHONY: local-helm
local-helm: cluster-up image bin/helm ## Install what is built here into the local cluster, by the Helm chart; bin/helm uninstall kruise removes it
	@KUBECONFIG="$$($(cluster) kubeconfig)" CHART=1 IMAGE=$(IMAGE) DAEMON_IMAGE=$(DAEMON_IMAGE) hack/deploy.sh

.PHONY: local-undeploy
local-undeploy: $(cluster) ## Remove it from the local cluster
	@KUBECONFIG="$$($(cluster) kubeconfig)" hack/undeploy.sh

##: Releasing

# Where images and chart of a release go, and from where its files are downloaded. Nothing is published by make release.
REPOSITORY ?= ghcr.io/afloat-project/afloat
DOWNLOADS ?= https://github.com/afloat-project/afloat/releases/download/$(VERSION)
OUT ?= bin/release
release = go -C hack/release run . $(1) -version "$(VERSION)" -repository "$(REPOSITORY)" -downloads "$(DOWNLOADS)" -out "$(abspath $(OUT))"

.PHONY: release-notes
release-notes: ## Make docs/releases/unreleased.md the notes of VERSION=v0.1.0, and begin new ones
	@hack/release-notes.sh "$(VERSION)"

.PHONY: release
release: ## Make a release into OUT=bin/release: VERSION=v0.1.0, PLATFORMS="linux/amd64 linux/arm64", by default all; REPOSITORY=, DOWNLOADS=
	@$(call release,build) -platforms "$(PLATFORMS)" -builder "$(BUILDER)"

.PHONY: release-push
release-push: ## Push the images and the chart of OUT=bin/release to REPOSITORY=
	@$(call release,push)
