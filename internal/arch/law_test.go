// SPDX-License-Identifier: Apache-2.0

package arch

// law says what one kind of package may import. Packages are paths below the repository, in the go command's patterns.
type law struct {
	// packages are those that the law is for; of several laws the first that matches counts.
	packages string
	// why is told to who breaks the law.
	why string
	// may lists what it may reach in this repository, through others too.
	may []string
	// calls, if set, narrows what it may import of this repository itself.
	calls []string
	// outside, if set, lists what it may import itself of other modules.
	outside []string
	// never lists what it may not reach of other modules, through others neither.
	never []string
	// std lists what it may not import itself of the standard library.
	std []string
	// timeless packages get the time as a value.
	timeless bool
}

// laws returns the import law. A package that no law knows is a failure: new rooms get their law first.
func laws() []law {
	var (
		names    = []string{"api/...", "actuator"}
		pure     = []string{"internal/hibernation", "internal/mysql/clustering", "internal/mysql/gtid", "internal/mysql/provisioning", "internal/cf/revision", "internal/cf/process", "internal/cf/lrp", "internal/cf/podstatus"}
		clients  = []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."}
		effects  = []string{"net", "net/http", "os", "os/exec", "log", "log/slog", "context"}
		decision = law{why: "a decision that sees only values can be tested to the last case", may: names, never: clients, std: effects, timeless: true}
		shell    = law{why: "features stay apart; only the manager brings them and the clouds together", may: append(names, "internal/reconcile")}
		front    = law{why: "people's tools say what is wanted and ask pure features what it means; controllers do it", may: append(names, pure...)}
	)
	return []law{
		{
			packages: "api/...", why: "names that everybody imports must not cost anybody a client",
			outside: []string{"k8s.io/apimachinery/...", "k8s.io/api/..."}, never: clients,
		},
		{
			packages: "actuator", why: "who writes an actuator needs neither Kubernetes nor somebody else's SDK",
			never: []string{"..."},
		},
		{
			packages: "actuator/actuatortest", why: "the contract suite is for authors of actuators, who have no cluster",
			may: []string{"actuator"}, outside: []string{"github.com/google/go-cmp/..."}, never: clients,
		},
		{
			packages: "conditional/...", why: "the library must stay extractable, so it knows nothing of its first user",
			may: []string{"conditional/..."},
		},

		decision.of("internal/hibernation"),
		decision.of("internal/hibernation/csr").allowing("net"),
		shell.of("internal/hibernation/targetcluster").reaching("internal/hibernation/..."),
		shell.of("internal/hibernation/controller/...").reaching("internal/hibernation/..."),

		decision.of("internal/mysql/clustering").reaching("internal/mysql/gtid"),
		decision.of("internal/mysql/gtid"),
		shell.of("internal/mysql/sqlclient/...").reaching("internal/mysql/clustering/..."),
		shell.of("internal/mysql/clustering/controller/...").reaching("internal/mysql/clustering/..."),

		decision.of("internal/mysql/provisioning"),
		shell.of("internal/mysql/provisioning/controller/...").reaching("internal/mysql/provisioning/..."),
		decision.of("internal/mysql/backup"),
		{
			packages: "internal/mysql/backup/bucket", why: "a place for objects knows nothing of what they are",
			never: clients,
		},
		{
			packages: "internal/mysql/backup/job", why: "what runs in the Pods of Jobs needs nothing of Kubernetes",
			may: append(names, "internal/mysql/backup", "internal/mysql/backup/bucket"), never: clients,
		},
		shell.of("internal/mysql/backup/controller/...").reaching("internal/mysql/backup"),

		decision.of("internal/cf"),
		decision.of("internal/cf/revision"),
		decision.of("internal/cf/podstatus").reaching("internal/cf/revision"),
		decision.of("internal/cf/process").reaching("internal/cf/revision").reaching("internal/cf/podstatus"),
		decision.of("internal/cf/app").reaching("internal/cf/process").reaching("internal/cf/revision").reaching("internal/cf/podstatus"),
		decision.of("internal/cf/lrp").reaching("internal/cf/revision"),
		decision.of("internal/cf/deployment").reaching("internal/cf/revision"),
		decision.of("internal/cf/orgspace"),
		decision.of("internal/cf/build"),
		shell.of("internal/cf/admission/...").reaching("internal/cf/revision").reaching("internal/cf/admission/..."),
		shell.of("internal/cf/podcache"),
		shell.of("internal/cf/process/controller").reaching("internal/cf/process").reaching("internal/cf/revision").reaching("internal/cf/podstatus").reaching("internal/cf/podcache"),
		shell.of("internal/cf/app/controller").reaching("internal/cf/app").reaching("internal/cf/process").reaching("internal/cf/revision").reaching("internal/cf/podstatus"),
		shell.of("internal/cf/lrp/controller").reaching("internal/cf/lrp").reaching("internal/cf/revision").reaching("internal/cf/podstatus").reaching("internal/cf/podcache"),
		shell.of("internal/cf/deployment/controller").reaching("internal/cf/deployment").reaching("internal/cf/revision"),
		shell.of("internal/cf/orgspace/controller").reaching("internal/cf/orgspace"),
		shell.of("internal/cf/build/controller").reaching("internal/cf/build"),

		{
			packages: "internal/reconcile", why: "an idiom that knows a feature is no idiom",
			may: []string{"api/torpor/..."},
		},
		{
			packages: "internal/cloud/*", why: "one package, one SDK: a cloud knows its port and nothing else of us",
			may: []string{"actuator"}, never: clients,
		},
		front.of("internal/cf/api/...").reaching("internal/cf/api/..."),
		front.of("internal/cli/...").reaching("internal/cli/..."),
		{
			packages: "internal/manager/...", why: "the only place that wires",
			may: []string{"..."},
		},
		{
			packages: "cmd/torpor", why: "a command starts what others have wired",
			may: []string{"..."}, calls: []string{"internal/manager", "internal/cf/api", "internal/mysql/backup/job"},
		},
		front.of("cmd/kubectl-*").reaching("internal/cli/...").calling("internal/cli/..."),

		{
			packages: "internal/testenv/...", why: "what tests share must not pull a feature into another feature's tests",
			may: append(names, "internal/reconcile", "internal/testenv/..."),
		},
		{
			packages: "internal/e2e/...", why: "stories from outside are tests only: what they share lives in testenv",
			never: []string{"..."},
		},
		{
			packages: "internal/arch", why: "the judge depends on nobody",
			never: []string{"..."},
		},
		{
			packages: "local/...", why: "the world for demo and tests must not share code with what it tests",
			may: []string{"api/...", "local/..."},
		},
	}
}

// testOnly lists what no package outside may link in, whatever its law says.
func testOnly() []string {
	return []string{"local/...", "internal/arch", "internal/e2e/...", "internal/testenv/...", "actuator/actuatortest"}
}

func (l law) of(packages string) law {
	l.packages = packages
	return l
}

func (l law) reaching(packages string) law {
	l.may = append([]string{packages}, l.may...)
	return l
}

func (l law) calling(packages string) law {
	l.calls = append([]string{packages}, l.calls...)
	return l
}

func (l law) allowing(pkg string) law {
	var std []string
	for _, banned := range l.std {
		if banned != pkg {
			std = append(std, banned)
		}
	}
	l.std = std
	return l
}
