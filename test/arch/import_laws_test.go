// SPDX-License-Identifier: Apache-2.0

package arch

import "slices"

// importLaw defines the imports that are allowed in certain packages. Packages are paths relative to the repository,
// and may be patterns of the go command.
type importLaw struct {
	// packages are the packages that the law applies to. If several laws match a package, the first one applies.
	packages string
	// reason is part of the error for every breach.
	reason string
	// mayReach lists packages of this repository that may be imported, directly or through others.
	mayReach []string
	// mayImport, if set, narrows which packages of this repository may be imported directly.
	mayImport []string
	// mayImportForeign, if set, lists which packages of other modules may be imported directly.
	mayImportForeign []string
	// mayNotReach lists packages of other modules that may not be imported, not even through others.
	mayNotReach []string
	// bannedStandard lists packages of the standard library that may not be imported directly.
	bannedStandard []string
	// getsTimeAsValue forbids calls of time.Now: the package receives the time as a value.
	getsTimeAsValue bool
}

// importLaws returns every law. A package without a law fails the test, so a new package needs a law.
func importLaws() []importLaw {
	return slices.Concat(publicLaws(), sharedLaws(), hibernationLaws(), targetLaws(), slumberLaws(), mysqlLaws(), cfLaws(), programLaws(), testToolLaws())
}

func publicNames() []string { return []string{"api/...", "actuator"} }

func kubernetesClients() []string {
	return []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."}
}

func pureLaw(packages string) importLaw {
	return importLaw{
		packages: packages, reason: "a decision that sees only values can be tested to the last case",
		mayReach: append(publicNames(), "internal/decision"), mayNotReach: kubernetesClients(),
		bannedStandard: []string{"net", "net/http", "os", "os/exec", "log", "log/slog", "context"}, getsTimeAsValue: true,
	}
}

func controllerLaw(packages string) importLaw {
	return importLaw{
		packages: packages, reason: "features stay apart; only the manager brings them and the clouds together",
		mayReach: append(publicNames(), "internal/background", "internal/decision", "internal/reconcile", "internal/coexist/otherwriter", "internal/reconcile/status", "internal/reconcile/statusannotation", "internal/reconcile/priority", "internal/stop/metrics", "internal/stop/record", "internal/stop/savings"),
	}
}

func frontLaw(packages string) importLaw {
	return importLaw{
		packages: packages, reason: "people's tools write down what is wanted and ask pure features what it means; controllers act on it",
		mayReach: append(publicNames(), "internal/buildinfo", "internal/decision", "internal/reconcile/statusannotation", "internal/stop/preflight", "internal/stop/record", "internal/cluster/hibernation", "internal/mysql/users", "internal/mysql/certificates", "internal/mysql/clustering", "internal/mysql/gtid", "internal/mysql/provisioning", "internal/mysql/switches", "internal/switches/slumber", "internal/switches/fieldswitch", "internal/switches/stopadapter", "internal/leaderelection/lease", "internal/leaderelection/leasereader",
			"internal/cf/revision", "internal/cf/process", "internal/cf/lrp", "internal/cf/podstatus", "internal/cf/route"),
	}
}

func publicLaws() []importLaw {
	return []importLaw{
		{
			packages: "api/...", reason: "names that everything imports must not cost anyone a client",
			mayReach:         []string{"api/torpor/..."},
			mayImportForeign: []string{"k8s.io/apimachinery/...", "k8s.io/api/..."}, mayNotReach: kubernetesClients(),
		},
		{
			packages: "actuator", reason: "the author of an actuator needs neither Kubernetes nor the SDK of another cloud",
			mayNotReach: []string{"..."},
		},
		{
			packages: "actuator/actuatortest", reason: "the contract suite is for authors of actuators, who have no cluster",
			mayReach: []string{"actuator"}, mayImportForeign: []string{"github.com/google/go-cmp/..."}, mayNotReach: kubernetesClients(),
		},
		{
			packages: "config", reason: "manifests know nothing of the code that reads them",
			mayReach: []string{"config/crd"},
		},
		{
			packages: "conditional/...", reason: "the library must stay extractable, so it knows nothing of its first user",
			mayReach: []string{"conditional/..."},
		},
	}
}

func sharedLaws() []importLaw {
	decision := pureLaw("internal/decision")
	decision.mayReach, decision.mayImportForeign = nil, []string{"k8s.io/apimachinery/pkg/apis/meta/v1"}
	return []importLaw{
		decision,
		pureLaw("internal/coexist/otherwriter"),
		{
			packages: "internal/reconcile", reason: "an idiom that knows a feature is no idiom",
			mayReach: []string{"api/torpor/...", "internal/decision", "internal/coexist/otherwriter", "internal/reconcile/status", "internal/reconcile/statusannotation", "internal/reconcile/priority"},
		},
		{
			packages: "internal/reconcile/status", reason: "how a status is stored does not depend on how it is made",
			mayReach: []string{"api/torpor/...", "internal/decision", "internal/reconcile/statusannotation"},
		},
		{packages: "internal/reconcile/priority", reason: "the order of passes does not depend on what they do"},
		pureLaw("internal/reconcile/statusannotation"),
		pureLaw("internal/admin/crds"),
		pureLaw("internal/stop/record"),
		pureLaw("internal/stop/savings"),
		pureLaw("internal/switches/requester").alsoReaching("internal/stop/record"),
		controllerLaw("internal/switches/requester/webhook").alsoReaching(stoppableKinds()...),
		pureLaw("internal/stop/metrics").alsoReaching("internal/stop/record", "internal/stop/savings"),
		pureLaw("internal/stop/preflight").alsoReaching("internal/stop/record"),
		{packages: "internal/buildinfo", reason: "every program says what it is, so this costs no client", mayNotReach: kubernetesClients()},
		{packages: "config/crd", reason: "files that other programs embed cost nobody a package", mayNotReach: []string{"..."}},
		{
			packages: "internal/httpguard", reason: "a budget for answers knows nothing of who asks",
			mayNotReach: []string{"..."},
		},
		{
			packages: "internal/background", reason: "a service that makes calls knows neither their users nor the cluster",
			mayNotReach: append(kubernetesClients(), "k8s.io/api/..."),
		},
		{
			packages: "internal/cloud/*", reason: "one package, one SDK: a cloud knows its port, the budgets of answers, what is the same for clouds, and nothing else of this repository",
			mayReach: []string{"actuator", "internal/buildinfo", "internal/cloud/errortable", "internal/cloud/machinenames", "internal/cloud/onebyone", "internal/cloud/rest", "internal/httpguard"}, mayNotReach: kubernetesClients(),
		},
		{
			packages: "internal/cloud/errortable/errortabletest", reason: "tests of tables know the tables of no cloud",
			mayReach: []string{"actuator", "internal/cloud/errortable"}, mayNotReach: kubernetesClients(),
		},
	}
}

func hibernationLaws() []importLaw {
	return []importLaw{
		pureLaw("internal/cluster/hibernation").alsoReaching("internal/stop/record", "internal/stop/savings"),
		pureLaw("internal/cluster/hibernation/csr").allowingImport("net"),
		controllerLaw("internal/cluster/hibernation/targetcluster").alsoReaching("internal/cluster/hibernation/...", "internal/stop/preflight", "internal/buildinfo", "internal/httpguard"),
		{
			packages: "internal/cluster/hibernation/cloudcalls", reason: "what waits for clouds knows neither the hub nor the decision",
			mayReach: []string{"actuator", "internal/background"}, mayNotReach: kubernetesClients(),
		},
		controllerLaw("internal/cluster/hibernation/controller").alsoReaching("internal/cluster/hibernation/...", "internal/stop/preflight", "internal/buildinfo", "internal/httpguard"),
	}
}

// targetClients returns the packages that connect to clusters.
func targetClients() []string {
	return []string{"internal/cluster/hibernation", "internal/cluster/hibernation/csr", "internal/cluster/hibernation/targetcluster", "internal/stop/preflight", "internal/buildinfo", "internal/httpguard"}
}

func targetLaws() []importLaw {
	return []importLaw{
		controllerLaw("internal/cluster/targetcalls").alsoReaching(targetClients()...),
		pureLaw("internal/cluster/syncset"),
		controllerLaw("internal/cluster/syncset/controller").alsoReaching(targetClients()...).alsoReaching("internal/cluster/targetcalls", "internal/cluster/syncset"),
		pureLaw("internal/cluster/machinepool"),
		controllerLaw("internal/cluster/machinepool/controller").alsoReaching(targetClients()...).alsoReaching("internal/cluster/targetcalls", "internal/cluster/machinepool"),
	}
}

// stoppableKinds returns the kinds that can be stopped, and the packages from which they are made.
func stoppableKinds() []string {
	return []string{
		"internal/switches/kinds", "internal/cf/revision", "internal/cluster/hibernation", "internal/leaderelection/lease", "internal/mysql/switches", "internal/coexist/otherwriter",
		"internal/reconcile/statusannotation", "internal/switches/fieldswitch", "internal/stop/preflight", "internal/stop/record", "internal/stop/savings", "internal/switches/requester",
	}
}

func slumberLaws() []importLaw {
	return []importLaw{
		pureLaw("internal/switches/fieldswitch").alsoReaching("internal/stop/record", "internal/stop/savings"),
		pureLaw("internal/switches/stopadapter").alsoReaching(stoppableKinds()...),
		controllerLaw("internal/switches/stopadapter/controller").alsoReaching(stoppableKinds()...).alsoReaching("conditional/...", "internal/switches/stopadapter", "internal/switches/fieldswitch/controller"),
		controllerLaw("internal/switches/fieldswitch/controller").alsoReaching(stoppableKinds()...),
		pureLaw("internal/switches/kinds").alsoReaching(stoppableKinds()...),
		pureLaw("internal/switches/slumber").alsoReaching(stoppableKinds()...),
		controllerLaw("internal/switches/slumber/controller").alsoReaching(stoppableKinds()...).alsoReaching("internal/switches/slumber"),
	}
}

func mysqlLaws() []importLaw {
	return []importLaw{
		pureLaw("internal/mysql/gtid"),
		pureLaw("internal/mysql/switches").alsoReaching("internal/stop/record"),
		pureLaw("internal/mysql/clustering").alsoReaching("internal/mysql/gtid"),
		pureLaw("internal/mysql/users"),
		pureLaw("internal/mysql/certificates"),
		pureLaw("internal/mysql/provisioning").alsoReaching("internal/mysql/users", "internal/mysql/certificates"),
		pureLaw("internal/mysql/backup").alsoReaching("internal/mysql/users", "internal/mysql/certificates", "internal/mysql/backup/binlogparser", "internal/mysql/gtid"),
		pureLaw("internal/mysql/backup/binlogparser").alsoReaching("internal/mysql/gtid"),
		pureLaw("internal/mysql/backup/mysqlshdump").alsoReaching("internal/mysql/gtid"),
		controllerLaw("internal/mysql/sqlclient"),
		controllerLaw("internal/mysql/clustering/controller").alsoReaching("internal/mysql/users", "internal/mysql/certificates", "internal/mysql/clustering", "internal/mysql/gtid", "internal/mysql/sqlclient", "internal/mysql/switches"),
		controllerLaw("internal/mysql/provisioning/controller").alsoReaching("internal/mysql/users", "internal/mysql/certificates", "internal/mysql/provisioning", "internal/mysql/switches"),
		controllerLaw("internal/mysql/backup/controller").alsoReaching("internal/mysql/users", "internal/mysql/certificates", "internal/mysql/backup", "internal/mysql/backup/binlogparser", "internal/mysql/gtid", "internal/mysql/switches"),
		{
			packages: "internal/mysql/backup/bucket", reason: "a place for objects knows nothing of what they are",
			mayReach: []string{"internal/buildinfo"}, mayNotReach: kubernetesClients(),
		},
		{
			packages: "internal/mysql/backup/runner", reason: "what runs in the Pods of Jobs needs nothing of Kubernetes",
			mayReach:    append(publicNames(), "internal/buildinfo", "internal/mysql/users", "internal/mysql/certificates", "internal/mysql/sqlclient", "internal/mysql/backup", "internal/mysql/backup/binlogparser", "internal/mysql/backup/bucket", "internal/mysql/backup/mysqlshdump", "internal/mysql/gtid"),
			mayNotReach: kubernetesClients(),
		},
	}
}

func cfLaws() []importLaw {
	const (
		cache, podstatus, process, revision = "internal/cf/podcache", "internal/cf/podstatus", "internal/cf/process", "internal/cf/revision"
		environment                         = "internal/cf/appenvironment"
	)
	return []importLaw{
		frontLaw("internal/cf/api/...").alsoReaching("internal/cf/api/..."),
		pureLaw("internal/cf"),
		pureLaw(revision),
		pureLaw(podstatus).alsoReaching(revision),
		pureLaw(process).alsoReaching(revision, podstatus, "internal/stop/record"),
		pureLaw("internal/cf/app").alsoReaching(process, revision, podstatus, "internal/cf/lrp", "internal/stop/record", "internal/stop/savings"),
		pureLaw("internal/cf/lrp").alsoReaching(revision, podstatus),
		pureLaw("internal/cf/deployment").alsoReaching(revision),
		pureLaw("internal/cf/orgspace"),
		pureLaw("internal/cf/build"),
		pureLaw("internal/cf/route").alsoReaching(process, revision, podstatus, "internal/cf/lrp", "internal/stop/record"),
		pureLaw("internal/cf/kpack"),
		controllerLaw("internal/cf/kpack/controller").alsoReaching("internal/cf/kpack"),
		pureLaw("internal/cf/task").alsoReaching(process, revision, podstatus, "internal/cf/lrp", "internal/stop/record"),
		controllerLaw("internal/cf/task/controller").alsoReaching("internal/cf/task", environment, process, revision, podstatus, "internal/cf/lrp"),
		controllerLaw("internal/cf/admission/...").alsoReaching("internal/cf/admission/...", revision, "internal/stop/record"),
		controllerLaw(cache),
		controllerLaw(environment).alsoReaching(process, revision, podstatus),
		controllerLaw("internal/cf/process/controller").alsoReaching(process, revision, podstatus, cache, environment, "internal/cf/route", "internal/cf/lrp"),
		controllerLaw("internal/cf/app/controller").alsoReaching("internal/cf/app", process, revision, podstatus, "internal/cf/lrp"),
		controllerLaw("internal/cf/lrp/controller").alsoReaching("internal/cf/lrp", revision, podstatus, cache),
		controllerLaw("internal/cf/deployment/controller").alsoReaching("internal/cf/deployment", revision),
		controllerLaw("internal/cf/orgspace/controller").alsoReaching("internal/cf/orgspace"),
		controllerLaw("internal/cf/route/controller").alsoReaching("internal/cf/route", process, revision, podstatus, "internal/cf/lrp"),
		controllerLaw("internal/cf/imagemetadata").alsoReaching("internal/cf/build", "internal/httpguard", "internal/buildinfo"),
		controllerLaw("internal/cf/build/controller").alsoReaching("internal/cf/build", "internal/cf/imagemetadata", "internal/httpguard", "internal/buildinfo"),
	}
}

func programLaws() []importLaw {
	return []importLaw{
		frontLaw("internal/cli/...").alsoReaching(stoppableKinds()...).alsoReaching("internal/cli/..."),
		frontLaw("internal/page").alsoReaching(stoppableKinds()...).alsoReaching("internal/cf/api/authorization", "internal/cf/api/apierrors", "internal/switches/slumber"),
		{
			packages: "internal/leaderelection", reason: "which replica leads a part is decided before any feature runs",
			mayReach: []string{"conditional/...", "api/torpor/...", "internal/leaderelection/lease"},
		},
		{
			packages: "internal/leaderelection/installationlock", reason: "who may act is decided before any feature runs",
			mayReach: []string{"conditional/...", "api/torpor/...", "internal/leaderelection/lease"},
		},
		pureLaw("internal/leaderelection/lease"),
		{
			packages: "internal/leaderelection/leasereader", reason: "the plugins and the page read the Lease in the same way",
			mayReach: []string{"api/torpor/...", "internal/leaderelection/lease"}, getsTimeAsValue: true,
		},
		{
			packages: "internal/admin/uninstall", reason: "what takes Torpor away knows kinds and no controller",
			mayReach: append(append(publicNames(), "conditional/...", "config/crd", "internal/admin/objecteditor", "internal/admin/crds", "internal/leaderelection/installationlock", "internal/leaderelection/lease", "internal/coexist/otherwriter", "internal/decision"), stoppableKinds()...),
		},
		pureLaw("internal/admin/check").alsoReaching("internal/admin/crds"),
		{
			packages: "internal/admin/check/hub", reason: "what looks before anything is installed knows names and no feature",
			mayReach: append(publicNames(), "conditional/...", "config/crd", "internal/admin/crds", "internal/leaderelection/installationlock", "internal/leaderelection/lease", "internal/admin/check", "internal/decision"),
		},
		{
			packages: "hack/record", reason: "recording the output of a command needs nothing of the product",
		},
		{
			packages: "hack/release/...", reason: "what builds a release reads manifests and programs, and calls no feature",
			mayReach: append(publicNames(), "config", "config/crd", "hack/release/...", "internal/buildinfo", "internal/admin/check", "internal/admin/crds", "internal/decision"),
		},
		{
			packages: "internal/admin/objecteditor", reason: "changing many objects knows no kind",
		},
		{
			packages: "internal/admin/korifihandover", reason: "what hands over knows names and no feature",
			mayReach: append(publicNames(), "internal/admin/objecteditor", "internal/coexist/otherwriter"),
		},
		{
			packages: "internal/manager", reason: "the only place that wires",
			mayReach: []string{"..."},
		},
		{
			packages: "cmd/torpor", reason: "a command starts what others have wired",
			mayReach: []string{"..."}, mayImport: []string{"config", "internal/buildinfo", "internal/manager", "internal/admin/uninstall", "internal/admin/objecteditor", "internal/admin/korifihandover", "internal/cf/api", "internal/mysql/backup/runner", "internal/admin/crds", "internal/admin/check", "internal/admin/check/hub", "internal/cli/exit", "config/crd"},
		},
		frontLaw("cmd/kubectl-*").alsoReaching(stoppableKinds()...).alsoReaching("internal/cli/...").alsoCalling("internal/cli/..."),
	}
}

func testToolLaws() []importLaw {
	return []importLaw{
		{
			packages: "test/env/...", reason: "what tests share must not pull a feature into another feature's tests",
			mayReach: append(publicNames(), "test/env/...", "conditional/...", "internal/mysql/users", "internal/mysql/certificates"),
		},
		{
			packages: "test/e2e/...", reason: "stories from outside are tests only: what they share lives in testenv",
			mayNotReach: []string{"..."},
		},
		{
			packages: "test/arch", reason: "the judge depends on nothing",
			mayNotReach: []string{"..."},
		},
		{
			packages: "local/...", reason: "the environment of demos and tests must not share code with what it tests",
			mayReach: []string{"api/...", "local/..."},
		},
	}
}

// testOnlyPackages lists packages that no other package may import, directly or through others, whatever its law
// allows.
func testOnlyPackages() []string {
	return []string{"local/...", "test/...", "hack/...", "actuator/actuatortest", "internal/cloud/errortable/errortabletest"}
}

func (l importLaw) alsoReaching(packages ...string) importLaw {
	l.mayReach = slices.Concat(packages, l.mayReach)
	return l
}

func (l importLaw) alsoCalling(packages ...string) importLaw {
	l.mayImport = slices.Concat(packages, l.mayImport)
	return l
}

func (l importLaw) allowingImport(pkg string) importLaw {
	l.bannedStandard = slices.DeleteFunc(slices.Clone(l.bannedStandard), func(banned string) bool { return banned == pkg })
	return l
}
