// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	run := func() {
		os.Exit(NewPlugin(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}).Run(context.Background(), completion.PluginArguments(os.Args)))
	}
	testscript.Main(m, map[string]func(){"kubectl-moco": run, "kubectl_complete-moco": run})
}

// TestPlugin asks a real API server; its subtests share one, which takes seconds to start.
func TestPlugin(t *testing.T) {
	t.Parallel()
	server := testenv.StartAPIServer(t)
	server.InstallCRDs(t)
	t.Run("scripts", func(t *testing.T) { testScripts(t, server) })
	t.Run("others write at the same time", func(t *testing.T) { testConflicts(t, server) })
	t.Run("a status is left from an earlier stop", func(t *testing.T) { testLeftStatus(t, server) })
}

// testScripts runs the command lines of testdata/*.txtar with the real kubectl. Each script has a namespace of its own
// that is called as the script is.
func testScripts(t *testing.T, server *testenv.Environment) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: func(env *testscript.Env) error { return prepareScript(t.Context(), server, env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":     runWithExitCode,
			"apply":    applyFiles,
			"operator": startOperator,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("TORPOR_UPDATE") == "1",
	})
}

type kubeClientKey struct{}

// prepareScript gives a script its namespace, and a kubeconfig that leads there.
func prepareScript(ctx context.Context, server *testenv.Environment, env *testscript.Env) error {
	// The folder of a script is called after it.
	namespace := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	kube, err := newKubeClient(server.Config, namespace)
	if err != nil {
		return err
	}
	env.Values[kubeClientKey{}] = kube
	if err := server.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("make namespace: %w", err)
	}
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
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("expected exit code %d, found %d", want, got)
	}
}

// applyFiles FILE... makes objects with their statuses, as the namespace's only writer.
func applyFiles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: apply FILE...")
	}
	kube, ctx := ts.Value(kubeClientKey{}).(*kubeClient), context.Background()
	for _, file := range args {
		var written unstructured.Unstructured
		ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(file)), &written.Object))
		written.SetNamespace(kube.namespace)
		status, found := written.Object["status"]
		object := written.DeepCopy()
		ts.Check(kube.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("script"), client.ForceOwnership))
		if found {
			current := &unstructured.Unstructured{Object: map[string]any{"status": status}}
			current.SetGroupVersionKind(written.GroupVersionKind())
			current.SetNamespace(kube.namespace)
			current.SetName(written.GetName())
			ts.Check(kube.SubResource("status").Apply(ctx, client.ApplyConfigurationFromUnstructured(current), client.FieldOwner("script-status"), client.ForceOwnership))
		}
	}
}

// startOperator reports of every cluster of the script's namespace what its annotations say, until the script ends.
func startOperator(ts *testscript.TestScript, _ bool, _ []string) {
	kube := ts.Value(kubeClientKey{}).(*kubeClient)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := reportAll(ctx, kube); err != nil && ctx.Err() == nil && !k8serrors.IsConflict(err) {
				ts.Logf("operator: %v", err)
			}
			<-tick.C
		}
	})
	ts.Defer(running.Wait)
	ts.Defer(cancel)
}

func reportAll(ctx context.Context, kube *kubeClient) error {
	found, err := kube.listClusters(ctx)
	if err != nil {
		return err
	}
	for i := range found {
		before := found[i].DeepCopy()
		reportStops(&found[i])
		if err := kube.SubResource("status").Patch(ctx, &found[i], client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	return nil
}

func reportStops(c *mocov1beta2.MySQLCluster) {
	var pause, before mocov1beta2.Pause
	if c.Status.Pause != nil {
		before = *c.Status.Pause
	}
	for _, p := range []clusterPart{clusteringPart(), reconciliationPart()} {
		status, reason := metav1.ConditionTrue, p.condition
		if c.Annotations[p.Name] == stopValue {
			status, reason = metav1.ConditionFalse, "Stopped"
			stop := &mocov1beta2.Stop{Since: metav1.NewTime(time.Now()), By: fieldManager, Reason: c.Annotations[p.ReasonAnnotation(c.Annotations)]}
			if until, err := time.Parse(time.RFC3339, c.Annotations[p.UntilAnnotation(c.Annotations)]); err == nil {
				stop.Until = new(metav1.NewTime(until))
			}
			if p == clusteringPart() {
				pause.Clustering, pause.StartFindings = stop, before.StartFindings
				pause.ObservedAt, pause.LookRequest = new(metav1.NewTime(time.Now())), c.Annotations[mocov1beta2.LookRequestedAnnotation]
			} else {
				pause.Reconciliation = stop
			}
		}
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: p.condition, Status: status, Reason: reason})
	}
	c.Status.Pause = nil
	if pause.Clustering != nil || pause.Reconciliation != nil {
		c.Status.Pause = &pause
	}
}
