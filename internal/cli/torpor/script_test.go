// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	run := func() {
		os.Exit(Run(context.Background(), Streams{Out: os.Stdout, Err: os.Stderr}, completion.PluginArguments(os.Args)))
	}
	testscript.Main(m, map[string]func(){"kubectl-torpor": run, "kubectl_complete-torpor": run})
}

// TestPlugin asks a real API server, which takes seconds to start. First it serves none of the kinds, then one, then all.
func TestPlugin(t *testing.T) {
	t.Parallel()
	server := testenv.StartAPIServer(t)
	kubeconfig := server.KubeconfigPath(nil)
	expectRun(t, kubeconfig, exit.Failed, "expected the API server to serve ClusterDeployments, MySQLClusters or CFApps, or something else that was stopped once, found none of them", "status")
	expectRun(t, kubeconfig, exit.Failed, "expected the API server to serve korifi.cloudfoundry.org/v1alpha1, found that it does not", "why", "cfapp/shop")
	server.InstallCRDs(t, filepath.Join("..", "..", "..", "config", "crd", "moco.cybozu.com_mysqlclusters.yaml"))
	expectRun(t, kubeconfig, exit.Done, "Nothing that can be stopped found in namespace \"default\".\n", "status")
	expectRun(t, kubeconfig, exit.Failed, `expected the right to list MySQLClusters, Deployments, StatefulSets, CronJobs in namespace "default", found that all are forbidden`, "status", "--as", "somebody")
	server.InstallCRDs(t)
	server.InstallCRDs(t, "../../foreignswitch/controller/testdata/crds.yaml")
	t.Run("follow", func(t *testing.T) { testFollow(t, server) })
	t.Run("plans", func(t *testing.T) { testPlanFixtures(t, server) })
	t.Run("scripts", func(t *testing.T) { testScripts(t, server) })
}

// expectRun demands the exit code, no output, and a part of what is said beside it.
func expectRun(t *testing.T, kubeconfig string, code exit.Code, stderr string, args ...string) {
	t.Helper()
	var out, said bytes.Buffer
	got := Run(t.Context(), Streams{Out: &out, Err: &said}, append(args, "--kubeconfig", kubeconfig))
	if exit.Code(got) != code || out.Len() > 0 || !strings.Contains(said.String(), stderr) {
		t.Errorf("%q: found exit code %d, output %q and %q, want %d, nothing and %q", args, got, out.String(), said.String(), code, stderr)
	}
}

// testScripts runs the command lines of testdata/*.txtar with the real kubectl. Each script has a namespace of its own
// that is called as the script is.
func testScripts(t *testing.T, server *testenv.Environment) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: func(env *testscript.Env) error { return prepareScript(t.Context(), server, env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  runWithExitCode,
			"apply": applyFiles,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("TORPOR_UPDATE") == "1",
	})
}

type namespaceClientKey struct{}

// prepareScript gives a script its namespace, and a kubeconfig that leads there.
func prepareScript(ctx context.Context, server *testenv.Environment, env *testscript.Env) error {
	// The folder of a script is called after it.
	namespace := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	if err := server.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("make namespace: %w", err)
	}
	env.Values[namespaceClientKey{}] = client.NewNamespacedClient(server.Client, namespace)
	file, err := clientcmd.LoadFromFile(server.KubeconfigPath(nil))
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	file.Contexts[file.CurrentContext].Namespace = namespace
	path := filepath.Join(env.WorkDir, "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	env.Setenv("KUBECONFIG", path)
	env.Setenv("HOME", env.WorkDir)
	// There the real kubectl is.
	env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+filepath.Dir(os.Getenv("TORPOR_LOCAL")))
	return nil
}

// runWithExitCode N COMMAND... runs a command and demands its exit code.
func runWithExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("expected exit code %d, found %d", want, got)
	}
}

// applyFiles FILE... makes objects with their statuses.
func applyFiles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: apply FILE...")
	}
	kube, ctx := ts.Value(namespaceClientKey{}).(client.Client), context.Background()
	for _, file := range args {
		var written unstructured.Unstructured
		ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(file)), &written.Object))
		status, found := written.Object["status"]
		ts.Check(kube.Create(ctx, &written, client.FieldOwner("script")))
		if found {
			written.Object["status"] = status
			ts.Check(kube.Status().Update(ctx, &written, client.FieldOwner("script-status")))
		}
	}
}
