# Thin on purpose: every target is one or two commands. `make help` lists them.
SHELL   := /bin/bash
BIN     := $(CURDIR)/.cache/bin
export KUBEBUILDER_ASSETS := $(BIN)
export TORPOR_LOCAL := $(BIN)/local
KUBE    := v1.36.3
VERSION := -X k8s.io/component-base/version.gitVersion=$(KUBE) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBE) \
  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/component-base/version.gitTreeState=clean
TOOL    := go tool -modfile=$(CURDIR)/go.tools.mod

.PHONY: help
help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: local
local: ## Build the local control plane, nodes and cloud into .cache/bin (first time: about five minutes on two cores)
	@mkdir -p $(BIN)
	@[ -x $(BIN)/local ] || echo "building Kubernetes $(KUBE) from source: about five minutes the first time, cached afterwards"
	@cd local && CGO_ENABLED=0 go build -trimpath -ldflags="-s -w $(VERSION)" -o $(BIN)/local .
	@cd $(BIN) && for name in etcd kube-apiserver kubectl; do ln -sf local $$name; done

.PHONY: node-parts
node-parts: local ## Fetch containerd and its companions into .cache/node and build CoreDNS; nothing is installed on the machine
	@cd local && CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/pause ./pause
	@cd local && CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/webapp ./pods/webapp
	@[ -x $(BIN)/coredns ] || echo "building CoreDNS from source: about two minutes the first time, cached afterwards"
	@cd local/dns && CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/coredns .
	@cd $(BIN) && for name in kubelet kube-proxy; do ln -sf local $$name; done
	@$(BIN)/local node-parts --dir .cache/node

.PHONY: torpor
torpor: ## Build torpor into .cache/bin
	@CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/torpor ./cmd/torpor

.PHONY: kubectl-moco
kubectl-moco: ## Build the plugin kubectl-moco into .cache/bin
	@CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/kubectl-moco ./cmd/kubectl-moco

.PHONY: mysql
mysql: local ## Fetch a real MySQL server into .cache/mysql; nothing is installed on the machine
	@$(BIN)/local mysql --dir .cache/mysql --optional

.PHONY: s3
s3: ## Build versitygw, the S3 server of the tests, into .cache/bin (first time: about a minute)
	@CGO_ENABLED=0 go build -modfile=go.s3.mod -trimpath -ldflags="-s -w" -o $(BIN)/versitygw github.com/versity/versitygw/cmd/versitygw

.PHONY: demo
demo: local torpor ## Hibernate and wake a real cluster, and print what was observed
	@$(BIN)/local demo --dir .cache/demo

.PHONY: demo-mysql
demo-mysql: kubectl-moco torpor ## Stop and start the clustering of a MySQL cluster with real pods, as root on Debian (DEMO=--kubeconfig=FILE: in a cluster of yours)
	@$(MAKE) --no-print-directory $(if $(findstring --kubeconfig,$(DEMO)),local,node-parts mysql)
	@$(BIN)/local demo-mysql --dir .cache/demo-mysql $(DEMO)

.PHONY: demo-cf
demo-cf: local torpor ## Push, restart, roll and delete an app through the CF API, and print what was observed (about a minute)
	@$(BIN)/local demo-cf --dir .cache/demo-cf

.PHONY: up
up: local torpor ## Build the stage of the demo and keep it running
	@$(BIN)/local up --dir .cache/up

.PHONY: pods-up
pods-up: node-parts torpor mysql ## As root: a cluster with real pods, kept running; images of mysqld and of torpor are in it
	@$(BIN)/local pods up --dir .cache/pods

.PHONY: pods-down
pods-down: ## Stop what `make pods-up` has built
	@$(BIN)/local pods down --dir .cache/pods

.PHONY: down
down: ## Stop what `make up` has built
	@$(BIN)/local down --dir .cache/up

.PHONY: bench
bench: local torpor ## Measure one cluster; prints a table and writes .cache/bench/hibernate-one.json (about six minutes)
	@$(BIN)/local bench --dir .cache/bench/stage --out .cache/bench/hibernate-one.json

.PHONY: bench-conditional
bench-conditional: local ## Measure the library conditional and plain controller-runtime; prints a table and writes .cache/bench/conditional.json (about half an hour; BENCH=--quick: four minutes)
	@cd conditional && CGO_ENABLED=0 go build -trimpath -o $(BIN)/bench-conditional ./bench
	@$(BIN)/bench-conditional --out $(CURDIR)/.cache/bench/conditional.json $(BENCH)

# What a test needs: the binaries it starts, and where they are.
export TORPOR_BINARY := $(BIN)/torpor
export TORPOR_MYSQL := $(CURDIR)/.cache/mysql
export TORPOR_S3 := $(BIN)/versitygw
export TORPOR_NODE := $(CURDIR)/.cache/node
GOTEST  := go test -race -shuffle=on -timeout=20m

.PHONY: test
test: local torpor mysql s3 ## Run all tests with everything they need (about ten minutes warm)
	@$(MAKE) --no-print-directory --jobs=2 test-torpor test-library

# Tests wait more than they work, so two packages are tested at a time, and the library beside them.
.PHONY: test-torpor test-library
test-torpor:
	@$(GOTEST) -p 2 ./...
	@cd local && $(GOTEST) -p 1 ./cloud/... ./pki/...

test-library:
	@cd conditional && $(GOTEST) -p 1 ./...

.PHONY: test-run
test-run: local torpor mysql s3 ## Run one test with everything it needs: make test-run PKG=./internal/e2e RUN=TestName
	@$(GOTEST) -v -count=1 $(PKG) -run '$(RUN)'

.PHONY: e2e
e2e: local torpor mysql ## Run the end-to-end tests at every fault point, and those with real pods
	@TORPOR_E2E=full $(GOTEST) -v -count=1 ./internal/e2e
	@TORPOR_E2E=full $(GOTEST) -v -count=1 ./internal/mysql/clustering/controller -run 'TestKilled'
	@$(MAKE) --no-print-directory e2e-pods

# A machine where there can be no real pods is told so, and it is no failure.
.PHONY: e2e-pods
e2e-pods: ## As root on Debian: run the tests with real pods (about nine minutes)
	@if why="$$(.ci/pods-can-run)"; then $(MAKE) --no-print-directory run-e2e-pods; else echo "NOT RUN: the tests with real pods: $$why"; fi

.PHONY: run-e2e-pods
run-e2e-pods: node-parts torpor kubectl-moco mysql s3
	@cd local && $(GOTEST) -v -count=1 -p 1 ./pods/story
	@TORPOR_E2E=pods $(GOTEST) -v -count=1 ./internal/e2e/pods

.PHONY: soak-mysql
soak-mysql: export TORPOR_SOAK := $(or $(SOAK),20m)
soak-mysql: export TORPOR_SEED := $(SEED)
soak-mysql: export TORPOR_BENCH_DIR := $(CURDIR)/.cache/bench
soak-mysql: local mysql ## Write to a MySQL cluster while it breaks at random, and look for lost rows (20 minutes; SOAK=2m SEED=1); writes .cache/bench/mysql-soak.json
	@go test -v -count=1 -timeout 60m ./internal/e2e/mysql -run 'TestSoak$$'

.PHONY: bench-mysql
bench-mysql: export TORPOR_BENCH := 1
bench-mysql: export TORPOR_BENCH_DIR := $(CURDIR)/.cache/bench
bench-mysql: local mysql torpor ## Measure stops, failovers and 200 clusters; prints a table and writes .cache/bench/mysql.json (about a quarter of an hour)
	@go test -v -count=1 -timeout 60m ./internal/e2e/mysql -run 'TestBench$$'

.PHONY: bench-restart
bench-restart: export TORPOR_BENCH := 1
bench-restart: export TORPOR_BENCH_DIR := $(CURDIR)/.cache/bench
bench-restart: local torpor ## Measure stops, starts and restarts of apps, and lists of 5,000; prints figures and writes .cache/bench/restart.json (about five minutes)
	@go test -v -count=1 -timeout 60m ./internal/e2e/cf -run 'TestBenchRestart$$'

.PHONY: generate
generate: ## Regenerate deep copies, CRDs, RBAC, the state diagrams and the reference
	@$(TOOL) controller-gen object:headerFile=config/boilerplate.go.txt crd paths=./api/... output:crd:dir=config/crd
	@$(TOOL) controller-gen rbac:roleName=torpor-manager,headerFile= paths=./internal/... output:rbac:dir=config/rbac
	@$(TOOL) controller-gen webhook paths=./internal/cf/admission/... output:webhook:dir=config/webhook
	@TORPOR_UPDATE=1 go test -count=1 ./internal/hibernation ./internal/arch -run 'TestDiagram|TestReference' >/dev/null
	@TORPOR_UPDATE=1 go test -count=1 ./internal/cf/api -run TestRoutesAreDocumented >/dev/null
	@cd conditional && TORPOR_UPDATE=1 go test -count=1 ./internal/machine -run TestDiagram >/dev/null

.PHONY: fmt
fmt: ## Format all Go code
	@for m in . conditional local local/dns; do (cd $$m && $(TOOL) golangci-lint fmt --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: lint
lint: ## Lint all modules
	@for m in . conditional local local/dns; do echo "lint $$m"; (cd $$m && $(TOOL) golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || exit 1; done

.PHONY: tidy
tidy: ## Tidy all modules
	@for m in . conditional local local/dns; do (cd $$m && go mod tidy) || exit 1; done

.PHONY: verify
verify: generate tidy lint ## Regenerate, tidy, lint and check the house laws; fails if anything differs from what is committed
	@go vet ./... && (cd conditional && go vet ./...)
	@go test -count=1 ./internal/arch
	@git diff --exit-code && test -z "$$(git status --porcelain)" || { git status --short; echo "expected a clean tree after make generate and tidy: commit what they changed"; exit 1; }
