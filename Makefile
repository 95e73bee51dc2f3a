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
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: local
local: ## Build the local control plane, nodes and cloud into .cache/bin (first time: about five minutes on two cores)
	@mkdir -p $(BIN)
	@[ -x $(BIN)/local ] || echo "building Kubernetes $(KUBE) from source: about five minutes the first time, cached afterwards"
	@cd local && CGO_ENABLED=0 go build -trimpath -ldflags="-s -w $(VERSION)" -o $(BIN)/local .
	@cd $(BIN) && for name in etcd kube-apiserver kubectl; do ln -sf local $$name; done

.PHONY: torpor
torpor: ## Build torpor into .cache/bin
	@CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/torpor ./cmd/torpor

.PHONY: demo
demo: local torpor ## Hibernate and wake a real cluster, and print what was observed
	@$(BIN)/local demo --dir .cache/demo

.PHONY: up
up: local torpor ## Build the stage of the demo and keep it running
	@$(BIN)/local up --dir .cache/up

.PHONY: down
down: ## Stop what `make up` has built
	@$(BIN)/local down --dir .cache/up

.PHONY: bench
bench: local torpor ## Measure one cluster; prints a table and writes .cache/bench/hibernate-one.json (about six minutes)
	@$(BIN)/local bench --dir .cache/bench/stage --out .cache/bench/hibernate-one.json
