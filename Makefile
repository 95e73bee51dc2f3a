# Thin on purpose: every target is one or two commands. `make help` lists them.
BIN     := $(shell mkdir -p .cache/bin)$(CURDIR)/.cache/bin
KUBE    := v1.36.3
VERSION := $(foreach p,component-base/version client-go/pkg/version,-X k8s.io/$p.gitVersion=$(KUBE)) $(foreach n,Major=1 Minor=36,-X k8s.io/component-base/version.git$n)
BUILD   := CGO_ENABLED=0 go build -trimpath -ldflags="-s -w"
# Where the tests find the programs that they start. A test whose variable is missing skips and names it, as in `make unit`.
PARTS   := KUBEBUILDER_ASSETS=$(BIN) TORPOR_LOCAL=$(BIN)/local TORPOR_BINARY=$(BIN)/torpor TORPOR_S3=$(BIN)/versitygw TORPOR_HELM=$(BIN)/helm \
  TORPOR_MYSQL=$(CURDIR)/.cache/mysql TORPOR_NODE=$(CURDIR)/.cache/node TORPOR_NOVA=$(CURDIR)/.cache/nova TORPOR_LIBVIRT=$(CURDIR)/.cache/libvirt TORPOR_ENGINE=$(CURDIR)/.cache/engine TORPOR_BMC=$(CURDIR)/.cache/bmc TORPOR_GUEST=$(CURDIR)/.cache/guest
$(foreach part,$(PARTS),$(eval export $(part))) # In the environment: tests look for processes by their command lines.
GOTEST  := go test -race -shuffle=on -timeout=60m -vet=off -ldflags=-s # Vet is in `make verify`; of symbols a stack trace needs none.
GOBENCH := TORPOR_BENCH=1 TORPOR_BENCH_DIR=$(CURDIR)/.cache/bench go test -v -count=1 -timeout=60m
MAKEFLAGS += --no-print-directory
.PHONY: $(shell sed -nE 's/^([a-z0-9 -]+):( .*)?$$/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## List the targets
	@awk -F': .*## |: ## ' '/^[a-z0-9 -]+:.* ## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
local: ## Build this machine's control plane, nodes and cloud into .cache/bin (the first time: five minutes)
	@[ -x $(BIN)/local ] || echo "building Kubernetes $(KUBE) from source: about five minutes the first time, cached afterwards"
	@cd local && $(BUILD) -ldflags="-s -w $(VERSION)" -o $(BIN)/local .
	@cd $(BIN) && for name in etcd kube-apiserver kubectl kubelet kube-proxy; do ln -sf local $$name; done
node-parts: local ## Fetch containerd and its companions into .cache/node and build CoreDNS; installs nothing
	@cd local && $(BUILD) -o $(BIN) ./pause ./podcluster/webapp
	@[ -x $(BIN)/coredns ] || echo "building CoreDNS from source: about two minutes the first time, cached afterwards"; cd local/dns && $(BUILD) -o $(BIN)/coredns .
	@$(BIN)/local node-parts --dir .cache/node
torpor kubectl-moco kubectl-torpor: ## Build the manager, or a plugin of kubectl, into .cache/bin
	@$(BUILD) -o $(BIN)/$@ ./cmd/$@
mysql nova libvirt guest engine bmc: local ## Fetch a real MySQL server, OpenStack's nova, libvirt with QEMU, the system of its guests, Docker or a BMC into .cache; installs nothing
	@$(BIN)/local $@ --dir .cache/$@ --optional
s3 helm release: ## Build versitygw, the S3 server of the tests; helm; or krew and OLM's validator, into .cache/bin (the first time: two minutes)
	@$(BUILD) -modfile=go.$@.mod -o $(BIN)/ tool
image plugins bundle chart: ## Build Torpor's image without Docker, the plugins with krew's manifests, the bundle for OLM, or the chart's archive, into .cache/release
	@go run ./cmd/release $@ --dir .cache/release $(RELEASE)
demo: ## See it work: NAME=hibernate (default), record, cf or mysql (as root on Debian, or DEMO=--kubeconfig=FILE)
bench: ## Measure: NAME=hibernate (default, 6 min), fleet (15), conditional (30; BENCH=--quick: 4), mysql (15), restart (12), sync (1), record (6) or page (2)
soak: ## Break things at random and look for what is lost: NAME=mysql (default, 20 min) or conditional (10), SOAK=20m SEED=1
demo bench soak:
	@$(MAKE) $@-$(or $(NAME),$(if $(filter soak,$@),mysql,hibernate))
demo-hibernate demo-record demo-cf: local torpor kubectl-torpor
	@$(BIN)/local $@ --dir .cache/$@
demo-mysql: kubectl-moco torpor $(if $(findstring --kubeconfig,$(DEMO)),local,node-parts mysql)
	@$(BIN)/local $@ --dir .cache/$@ $(DEMO)
bench-hibernate bench-fleet: local torpor
	@$(BIN)/local $@ --dir .cache/bench/stage --out .cache/bench/$(if $(findstring fleet,$@),fleet,hibernate-one).json $(BENCH)
bench-conditional soak-conditional: local
	@cd conditional/bench && go run $(if $(findstring soak,$@),-race . --soak=$(or $(SOAK),10m) --seed=$(or $(SEED),1),. --out $(CURDIR)/.cache/bench/conditional.json $(BENCH))
bench-mysql: local torpor mysql s3
	@$(GOBENCH) ./internal/e2e/mysql -run 'TestBench$$'
bench-restart bench-sync bench-record: local torpor
	@$(GOBENCH) ./internal/$(or $(if $(findstring sync,$@),syncset/controller),$(if $(findstring record,$@),e2e/record),e2e/cf) -run 'TestBench(Restart|Sync|Record)$$'
soak-mysql: local mysql
	@TORPOR_SOAK=$(or $(SOAK),20m) TORPOR_SEED=$(SEED) $(GOBENCH) ./internal/e2e/mysql -run 'TestSoak$$'
up: local torpor ## Run a hub, a cloud, a cluster and torpor, until `make down`; UP=--apps a hub, a gateway, torpor and an app
pods-up: node-parts torpor mysql ## As root on Debian: run a cluster with real pods, until `make pods-down`
up down pods-up pods-down:
	@$(BIN)/local $(subst -, ,$@) --dir .cache/$(or $(findstring pods,$@),up) $(if $(filter up,$@),$(UP))
unit: ## Run the tests that need no cluster and no download (under a minute warm)
	@unset $(foreach part,$(PARTS),$(firstword $(subst =, ,$(part)))); go test ./... && (cd conditional && go test ./... && cd bench && go test ./...) && cd local && go test ./cloud/... ./figures/... ./loopback/... ./pki/...
test: local torpor mysql s3 helm ## Run all tests with everything they need (about ten minutes warm)
	@$(MAKE) --jobs=2 test-torpor test-library # Tests wait more than they work.
test-torpor:
	@packages="$$(go list ./...)" && $(GOTEST) -p $(or $(P),3) $$(echo "$$packages" | awk '!/internal\/hibernation$$|clustering\/controller$$/; sub("/e2e/cf$$", "/mysql/clustering/controller")') && cd local && $(GOTEST) -p 1 ./cloud/... ./figures/... ./loopback/... ./pki/... # The two that wait longest run side by side.
test-library:
	@cd conditional && $(GOTEST) -p 1 ./... && (cd bench && $(GOTEST) ./...) && cd .. && CGO_ENABLED=0 $(subst -race,-trimpath,$(GOTEST)) ./internal/hibernation
test-loaded: local torpor mysql s3 helm ## Run all tests N=1 times beside eight busy loops, which end with their shell; P=2 packages at once, without the race detector, which `make test` has
	@for i in $$(seq 8); do while kill -0 $$$$; do :; done 2>/dev/null & done; for i in $$(seq $(or $(N),1)); do $(MAKE) test P=$(or $(P),2) GOTEST="CGO_ENABLED=0 $(subst -race,-trimpath,$(GOTEST))" || exit; done
test-run: local torpor mysql s3 helm ## Run one test with everything it needs: PKG=./internal/e2e RUN=TestName
	@$(GOTEST) -v -count=1 $(PKG) -run '$(RUN)'
test-release: release helm
test-tutorials: node-parts kubectl-torpor kubectl-moco
test-foreign test-hostile test-release test-tutorials: local torpor mysql ## Run the stories with the CRDs of Hive, MOCO and Korifi; beside hostile callers and servers; what krew, OLM and helm say of a release; or the tutorials
	@TORPOR_TUTORIALS=1 go test -v -count=1 -timeout=60m ./internal/e2e/$(@:test-%=%)
test-outside bench-page: local ## See the page in Chromium, and Torpor as Prometheus, Argo CD and kstatus see it; or measure the page
	@TORPOR_BENCH_DIR=$(CURDIR)/.cache/bench .ci/test-outside $@
e2e: local torpor mysql e2e-pods ## Run the end-to-end tests at every fault point, and those with real pods
	@TORPOR_E2E=full $(GOTEST) -v -count=1 ./internal/e2e && TORPOR_E2E=full $(GOTEST) -v -count=1 ./internal/mysql/clustering/controller -run 'TestKilled'
e2e-pods: ## As root on Debian: run the tests with real pods (about nine minutes); elsewhere say why not
	@if why="$$(.ci/pods-can-run)"; then $(MAKE) run-e2e-pods; else echo "NOT RUN: the tests with real pods: $$why"; fi
run-e2e-pods: node-parts torpor kubectl-moco mysql s3
	@cd local && $(GOTEST) -v -count=1 -p 1 ./podcluster/e2e && cd .. && TORPOR_E2E=pods $(GOTEST) -v -count=1 ./internal/e2e/pods
e2e-clouds e2e-machines: libvirt torpor ## Run the tests of clouds with Debian's nova, libvirtd, Docker (as root) and OpenIPMI's BMC, and time them; or, as root, a cluster of virtual machines
	@$(MAKE) $(if $(findstring clouds,$@),nova engine bmc,guest) && TORPOR_E2E=$(@:e2e-%=%) TORPOR_BENCH_DIR=$(CURDIR)/.cache/bench $(GOTEST) -v -count=1 -p 1 $(if $(findstring clouds,$@),./internal/cloud/... -run 'Contract|Nova|Real|Hibernates',./internal/e2e/machines)
generate: ## Regenerate deep copies, CRDs, RBAC, the state diagrams and the generated pages
	@.ci/generate
fmt lint: ## Format or lint all modules
	@for module in . conditional conditional/bench local local/dns; do (cd $$module && go tool -modfile=$(CURDIR)/go.tools.mod golangci-lint $(@:lint=run) -c $(CURDIR)/.golangci.yml ./...) || exit 1; done
tidy: ## Tidy all modules
	@for module in . conditional conditional/bench conditional/examples/stock local local/dns internal/outside/browser internal/outside/observers; do (cd $$module && go mod tidy) || exit 1; done
verify: generate tidy lint ## Regenerate, tidy, lint and check the house laws; fails if that changes what is committed
	@go test -count=1 ./internal/arch
	@git diff --exit-code && test -z "$$(git status --porcelain)" || { git status --short; echo "expected a clean tree"; exit 1; }
