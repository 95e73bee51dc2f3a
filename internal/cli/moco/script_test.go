// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/scripts"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	run := func() {
		os.Exit(NewPlugin(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}).Run(context.Background(), completion.PluginArguments(os.Args)))
	}
	testscript.Main(m, map[string]func(){"kubectl-moco": run, "kubectl_complete-moco": run})
}

// TestPlugin runs the scripts against a real API server. The subtests share one server, because a start takes seconds.
func TestPlugin(t *testing.T) {
	t.Parallel()
	server := testenv.StartAPIServer(t)
	server.InstallCRDs(t)
	t.Run("scripts", func(t *testing.T) {
		scripts.Run(t, server, map[string]scripts.Command{"operator": func(ts *testscript.TestScript, _ bool, _ []string) { startOperator(ts, server) }})
	})
	t.Run("acting", func(t *testing.T) { scripts.RunFolder(t, server, "testdata/acting", nil) }) // The scripts of this folder use the cluster's only Lease.
	t.Run("conflicts with other writers are retried", func(t *testing.T) { testConflicts(t, server) })
	t.Run("a status of an earlier stop does not count at once", func(t *testing.T) { testLeftStatus(t, server) })
}

// startOperator writes the status that follows from the annotations of every cluster in the script's namespace,
// until the script ends.
func startOperator(ts *testscript.TestScript, server *testenv.Environment) {
	kube, err := newKubeClient(server.Config, scripts.NamespaceOf(ts))
	ts.Check(err)
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
	for _, p := range mysqlswitches.ListParts() {
		status, reason := metav1.ConditionTrue, p.Condition
		if c.Annotations[p.Name] == mysqlswitches.StopValue {
			status, reason = metav1.ConditionFalse, "Stopped"
			stop := &mocov1beta2.Stop{Since: metav1.NewTime(time.Now()), By: fieldManager, Reason: c.Annotations[p.ReasonAnnotation(c.Annotations)]}
			if until, err := time.Parse(time.RFC3339, c.Annotations[p.UntilAnnotation(c.Annotations)]); err == nil {
				stop.Until = new(metav1.NewTime(until))
			}
			if p == mysqlswitches.ClusteringPart() {
				pause.Clustering, pause.StartFindings = stop, before.StartFindings
				pause.ObservedAt, pause.LookRequest = new(metav1.NewTime(time.Now())), c.Annotations[mocov1beta2.LookRequestedAnnotation]
			} else {
				pause.Reconciliation = stop
			}
		}
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: p.Condition, Status: status, Reason: reason})
	}
	c.Status.Pause = nil
	if pause.Clustering != nil || pause.Reconciliation != nil {
		c.Status.Pause = &pause
	}
}
