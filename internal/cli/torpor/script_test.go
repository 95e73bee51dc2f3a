// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/scripts"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	run := func() {
		os.Exit(Run(context.Background(), Streams{Out: os.Stdout, Err: os.Stderr}, completion.PluginArguments(os.Args)))
	}
	testscript.Main(m, map[string]func(){"kubectl-torpor": run, "kubectl_complete-torpor": run})
}

// TestPlugin runs against one real API server, because a start takes seconds. The server first has no CRD of Torpor,
// then one, and then all.
func TestPlugin(t *testing.T) {
	t.Parallel()
	server := testenv.StartAPIServer(t)
	kubeconfig := server.KubeconfigPath(nil)
	expectRun(t, kubeconfig, exit.Failed, "expected the API server to serve ClusterDeployments, MySQLClusters or CFApps, or stopped objects of another kind, found neither", "status")
	expectRun(t, kubeconfig, exit.Failed, "expected the API server to serve korifi.cloudfoundry.org/v1alpha1, found that it does not", "why", "cfapp/shop")
	server.InstallCRDs(t, filepath.Join("..", "..", "..", "config", "crd", "moco.cybozu.com_mysqlclusters.yaml"))
	expectRun(t, kubeconfig, exit.Done, "No stoppable object found in namespace \"default\".\n", "status")
	expectRun(t, kubeconfig, exit.Failed, `expected permission to list MySQLClusters, `+listWorkloads()+` in namespace "default", found that all are forbidden`, "status", "--as", "somebody")
	server.InstallCRDs(t)
	server.InstallCRDs(t, "../../switches/stopadapter/controller/testdata/crds.yaml")
	t.Run("status --watch follows all kinds", func(t *testing.T) { testFollow(t, server) })
	t.Run("status --watch follows one object", func(t *testing.T) { testFollowNamed(t, server) })
	t.Run("plans", func(t *testing.T) { testPlanFixtures(t, server) })
	t.Run("a plan reads every page", func(t *testing.T) { testPlanReadsEveryPage(t, server) })
	t.Run("a namespace is stopped and started in waves", func(t *testing.T) { testNamespaceWaves(t, server) })
	t.Run("scripts", func(t *testing.T) { scripts.Run(t, server, map[string]scripts.Command{"kinds": setKinds}) })
	t.Run("acting", func(t *testing.T) { scripts.RunFolder(t, server, "testdata/acting", nil) }) // The scripts of this folder use the cluster's only Lease.
}

// setKinds is the command kinds of scripts. It sets the variables KINDS to the names of all kinds, WORKLOADS to the
// plurals of workloads, and WAVES to the kinds in the order of the default waves.
func setKinds(ts *testscript.TestScript, _ bool, _ []string) {
	var waves []string
	for _, wave := range kinds.ListWorkloadWaves() {
		for _, k := range wave.Kinds {
			waves = append(waves, k.GVK().Kind)
		}
	}
	ts.Setenv("KINDS", listKindNames(kinds.ListBuiltIn()))
	ts.Setenv("WORKLOADS", listWorkloads())
	ts.Setenv("WAVES", strings.Join(waves, " "))
}

// expectRun runs a command, and expects an exit code, no output, and a text in stderr.
func expectRun(t *testing.T, kubeconfig string, code exit.Code, stderr string, args ...string) {
	t.Helper()
	var out, said bytes.Buffer
	got := Run(t.Context(), Streams{Out: &out, Err: &said}, append(args, "--kubeconfig", kubeconfig))
	if exit.Code(got) != code || out.Len() > 0 || !strings.Contains(said.String(), stderr) {
		t.Errorf("%q: found exit code %d, output %q and %q, want %d, nothing and %q", args, got, out.String(), said.String(), code, stderr)
	}
}
