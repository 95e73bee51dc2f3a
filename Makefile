# One target for each thing that a person types; `make help` lists them. .ci has the scripts.
BIN := $(CURDIR)/.cache/bin
KUBE := v1.37.2
KUBE_FLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBE) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37
LOCAL_FLAGS := -buildvcs=false -ldflags="-s -w $(KUBE_FLAGS)" -o $(BIN)/
# Builds and tests have the same flags, so that Go compiles each package once; the race detector needs its own build.
# Debug information, which stripped programs lose, is a sixth of the compiler's work, and the default GOGC another one.
GOFLAGS += -trimpath -gcflags=all=-dwarf=false
export GOFLAGS
BUILD := CGO_ENABLED=0 GOGC=400 $(CURDIR)/.ci/build
GO_RUN := CGO_ENABLED=0 go run
STRIPPED := -ldflags="-s -w"
GO_TEST := .ci/with-parts env CGO_ENABLED=0 go test -vet=off -ldflags=-s -v -count=1 -timeout=60m
BENCH_DIR := $(CURDIR)/.cache/bench
GO_BENCH := TORPOR_BENCH=1 TORPOR_BENCH_DIR=$(BENCH_DIR) $(GO_TEST)
MAKEFLAGS += --no-print-directory
.PHONY: help local node-components node-parts torpor kubectl-moco kubectl-torpor mysql nova libvirt guest engine bmc \
	s3 helm release image plugins bundle chart artifacts release-dry-run site \
	demo demo-workloads demo-hibernate demo-record demo-cf demo-mysql up down \
	pods-up pods-down unit test test-full fuzz rights test-loaded test-run test-foreign test-hostile test-release \
	test-tutorials test-outside e2e e2e-pods run-e2e-pods e2e-clouds e2e-machines bench bench-hibernate \
	bench-fleet bench-conditional bench-mysql bench-backup bench-restart bench-sync bench-record bench-page soak soak-mysql \
	soak-backup soak-all soak-conditional test-versions generate fmt lint tidy subjects vulnerabilities verify

help: ## List the targets
	@awk -F': .*## |: ## ' '/^[a-z0-9 -]+:.* ## / {printf "  %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Programs

local: ## Build this machine's control plane, nodes and cloud into .cache/bin (first time: ten minutes)
	@[ -x $(BIN)/local ] || echo "building Kubernetes $(KUBE) from source: about ten minutes on two cores the first time"
	@cd local && $(BUILD) local $(LOCAL_FLAGS) .
	@cd $(BIN) && for name in etcd kube-apiserver kubectl; do [ -e $$name ] || ln -s local $$name; done
node-components: ## Build the kubelet, kube-proxy and pause of real nodes into .cache/bin
	@cd local && $(BUILD) nodecomponents $(LOCAL_FLAGS) ./nodecomponents
	@cd $(BIN) && ln -sf nodecomponents kubelet && ln -sf nodecomponents kube-proxy
	@cd local && $(BUILD) pause $(STRIPPED) -o $(BIN)/ ./pause
node-parts: local node-components ## Build CoreDNS, and fetch containerd with its companions into .cache/node
	@cd local && $(BUILD) webapp $(STRIPPED) -o $(BIN)/ ./podcluster/webapp
	@cd local/dns && $(BUILD) coredns $(STRIPPED) -o $(BIN)/coredns .
	@$(BIN)/local node-parts --dir .cache/node
torpor kubectl-moco kubectl-torpor: ## Build the manager, or a plugin of kubectl, into .cache/bin
	@$(BUILD) $@ $(STRIPPED) -o $(BIN)/ ./cmd/$@
mysql nova libvirt guest engine bmc: local ## Fetch a real part of the tests into .cache; installs nothing
	@$(BIN)/local $@ --dir .cache/$@ --optional
s3 helm release: ## Build versitygw, helm, or krew and OLM's validator, into .cache/bin
	@GOFLAGS="$(GOFLAGS) -modfile=go.$@.mod" $(BUILD) $@ $(STRIPPED) -o $(BIN)/ tool
image plugins bundle chart artifacts: ## Build a part of a release, or all of it, into .cache/release
	@$(GO_RUN) ./hack/release $@ --dir .cache/release $(RELEASE)
site: ## Build the site of the documentation into .cache/site/dist, with node and npm; SITE=--base=/PATH/
	@.ci/site $(SITE)
release-dry-run: ## Build and list all artifacts of the next release, and check list, checksums and a signature
	@$(GO_RUN) ./hack/release artifacts --dry-run --dir .cache/release $(RELEASE)

##@ Demos

demo: ## See it work: NAME=hibernate (default), record, cf or mysql; DEMO=--kubeconfig=F uses a cluster that you have
	@$(MAKE) demo-$(or $(NAME),$(if $(DEMO),workloads,hibernate))
demo-workloads: torpor kubectl-torpor
	@$(if $(RECORD),$(GO_RUN) ./hack/record $(RECORD)) .ci/demo-workloads $(DEMO)
demo-hibernate demo-record demo-cf: local torpor kubectl-torpor
	@$(BIN)/local $@ --dir .cache/$@
demo-mysql: kubectl-moco torpor $(if $(filter --kubeconfig%,$(DEMO)),local,node-parts mysql)
	@$(BIN)/local $@ --dir .cache/$@ $(DEMO)
up: local torpor ## Run a hub, a cloud, a cluster and torpor, until `make down`; UP=--apps runs an app instead
	@$(BIN)/local up --dir .cache/up $(UP)
down: local ## Stop what `make up` runs
	@$(BIN)/local down --dir .cache/up
pods-up: node-parts torpor ## As root on Debian: run a cluster with real pods, until `make pods-down`
	@$(BIN)/local pods up --dir .cache/pods
pods-down: local ## Stop what `make pods-up` runs
	@$(BIN)/local pods down --dir .cache/pods

##@ Tests

unit: ## Run the tests that need no cluster and no download (under a minute warm)
	@.ci/test unit
test: local torpor mysql s3 helm ## Run all tests but the house laws (make verify); what did not change is cached
	@.ci/with-parts .ci/test
test-full: local torpor mysql s3 helm ## Run all tests with the race detector, at every fault point, in random order, then fuzz
	@.ci/with-parts .ci/test full
fuzz: ## Run each fuzz test for SECONDS=10; FUZZ=PATTERN selects some by their names
	@FUZZ="$(FUZZ)" .ci/fuzz $(SECONDS)
test-loaded: local torpor mysql s3 helm ## Run all tests N=1 times next to eight busy loops, which end with their shell
	@for i in $$(seq 8); do while kill -0 $$$$; do :; done 2>/dev/null & done; \
		for i in $$(seq $(or $(N),1)); do .ci/with-parts .ci/test loaded || exit; done
test-run: local torpor mysql s3 helm ## Run one test with everything it needs: PKG=./test/e2e RUN=TestName
	@$(GO_TEST) $(PKG) -run '$(RUN)'
test-versions: local ## Run the tests of the library conditional with another controller-runtime: VERSIONS="v0.24.1 v0.36.0"
	@.ci/with-parts .ci/test-versions $(VERSIONS)
test-foreign: local torpor mysql ## Run the stories with the CRDs of Hive, MOCO and Korifi
	@$(GO_TEST) ./test/e2e/foreign
test-hostile: local torpor mysql ## Run the stories with hostile callers and servers
	@$(GO_TEST) ./test/e2e/hostile
test-release: local torpor mysql release helm ## Check the parts of a release with krew, OLM's validator and helm
	@$(GO_TEST) ./test/e2e/release
test-tutorials: local torpor mysql node-parts helm kubectl-torpor kubectl-moco ## As root on Debian: run the tutorials
	@TORPOR_TUTORIALS=1 $(GO_TEST) ./test/e2e/tutorials
test-outside: local ## See the page in Chromium, and Torpor as Prometheus, Argo CD and kstatus see it
	@.ci/with-parts .ci/test-outside
e2e: local torpor mysql ## Kill processes at every fault point, and run the tests with real pods
	@TORPOR_E2E=full $(GO_TEST) ./test/e2e
	@TORPOR_E2E=full $(GO_TEST) ./internal/mysql/clustering/controller -run 'TestKilled'
	@$(MAKE) e2e-pods
e2e-pods: ## As root on Debian: run the tests with real pods (about nine minutes); elsewhere print why not
	@if why="$$(.ci/pods-can-run)"; then $(MAKE) run-e2e-pods; else echo "NOT RUN: the tests with real pods: $$why"; fi
run-e2e-pods: node-parts torpor kubectl-moco mysql s3
	@.ci/with-parts .ci/test pods
e2e-clouds: libvirt nova engine bmc torpor ## Run the tests of clouds with real parts, Docker's as root, and time them
	@TORPOR_E2E=clouds TORPOR_BENCH_DIR=$(BENCH_DIR) $(GO_TEST) -p 1 ./internal/cloud/... \
		-run 'Contract|Nova|Real|Hibernates'
e2e-machines: libvirt guest node-components torpor ## As root: hibernate a cluster of virtual machines
	@TORPOR_E2E=machines TORPOR_BENCH_DIR=$(BENCH_DIR) $(GO_TEST) ./test/e2e/machines

##@ Measurements

bench: ## Measure: NAME=hibernate (default), fleet, conditional, mysql, backup, restart, sync, record or page
	@$(MAKE) bench-$(or $(NAME),hibernate)
bench-hibernate: local torpor
	@$(BIN)/local $@ --dir $(BENCH_DIR)/stage --out $(BENCH_DIR)/hibernate-one.json $(BENCH)
bench-fleet: local torpor
	@$(BIN)/local $@ --dir $(BENCH_DIR)/stage --out $(BENCH_DIR)/fleet.json $(BENCH)
bench-conditional: local
	@cd conditional/bench && $(CURDIR)/.ci/with-parts env $(GO_RUN) . --out $(BENCH_DIR)/conditional.json $(BENCH)
bench-mysql: local torpor mysql s3
	@$(GO_BENCH) ./test/e2e/mysql -run 'TestBench$$'
bench-backup: local torpor mysql s3
	@TORPOR_BENCH_GB=$(or $(GB),20) $(GO_BENCH) ./internal/mysql/backup/runner -run 'TestBenchBackup$$'
bench-restart: local torpor
	@$(GO_BENCH) ./test/e2e/cf -run 'TestBenchRestart$$'
bench-sync: local torpor
	@$(GO_BENCH) ./internal/cluster/syncset/controller -run 'TestBenchSync$$'
bench-record: local torpor
	@$(GO_BENCH) ./test/e2e/record -run 'TestBenchRecord$$'
bench-page: local
	@TORPOR_BENCH_DIR=$(BENCH_DIR) .ci/with-parts .ci/test-outside bench-page
soak: ## Inject random faults or data and check for losses: NAME=mysql (default), backup, conditional or all, SOAK=20m SEED=1
	@$(MAKE) soak-$(or $(NAME),mysql)
soak-mysql: local mysql
	@TORPOR_SOAK=$(or $(SOAK),20m) TORPOR_SEED=$(SEED) $(GO_BENCH) ./test/e2e/mysql -run 'TestSoak$$'
soak-backup: local mysql s3
	@TORPOR_SOAK=$(or $(SOAK),20m) TORPOR_SEED=$(SEED) TORPOR_BENCH_DIR=$(BENCH_DIR) $(GO_TEST) \
		./internal/mysql/backup/runner -run 'TestSoak$$'
soak-all: local torpor mysql
	@TORPOR_SOAK=$(or $(SOAK),20m) TORPOR_SEED=$(SEED) $(GO_BENCH) ./test/e2e/soak -run 'TestSoak$$'
soak-conditional: local
	@cd conditional/bench && $(CURDIR)/.ci/with-parts go run -race . --soak=$(or $(SOAK),10m) --seed=$(or $(SEED),1)

##@ The house

generate: ## Regenerate deep copies, CRDs, RBAC, the state diagrams and the generated pages
	@.ci/generate
rights: local torpor ## Regenerate the tables of docs/security-model.md from the answers of a real API server
	@TORPOR_UPDATE=1 $(GO_TEST) ./test/e2e/rights
fmt: ## Format all modules
	@.ci/in-modules go tool -modfile=$(CURDIR)/go.tools.mod golangci-lint fmt -c $(CURDIR)/.golangci.yml ./...
lint: ## Lint all modules
	@.ci/in-modules go tool -modfile=$(CURDIR)/go.tools.mod golangci-lint run -c $(CURDIR)/.golangci.yml ./...
tidy: ## Tidy all modules
	@.ci/in-modules go mod tidy
	@cd conditional/examples/stock && go mod tidy
	@cd test/outside/browser && go mod tidy
	@cd test/outside/observers && go mod tidy
subjects: ## Check the subjects of commits: SINCE=REF (default: the last commit only)
	@SINCE="$(SINCE)" .ci/check-subjects
vulnerabilities: ## Check the programs and the library for known vulnerabilities, which needs the internet; VULN=-db=URL
	@CGO_ENABLED=0 go tool -modfile=go.tools.mod govulncheck $(VULN) ./cmd/...
	@cd conditional && CGO_ENABLED=0 go tool -modfile=../go.tools.mod govulncheck $(VULN) .
verify: generate tidy lint ## Regenerate, tidy, lint and check the house laws; fails if that changes what is committed
	@.ci/test laws
	@git diff --exit-code && test -z "$$(git status --porcelain)" || \
		{ git status --short; echo "expected a clean tree"; exit 1; }
