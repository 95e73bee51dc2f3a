// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func TestManagerRunsUntilItIsStoppedAndConditionsAreWaitedFor(t *testing.T) {
	env := Start(t)
	cluster := BuildMySQLCluster(t, types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "test"}, 1)
	env.ExpectCreated(t, cluster)
	stop := StartManager(t, env, func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(&mocov1beta2.MySQLCluster{}).Complete(becomesHealthy(mgr))
	})
	found := env.WaitForCondition(t, cluster, "Healthy", metav1.ConditionTrue, "AsWished")
	if found.Message != "all is well" {
		t.Errorf("expected the condition's message, found %q", found.Message)
	}
	env.WaitForEvent(t, cluster.Namespace, "Healed", "is well")
	stop()
	env.ExpectAnnotated(t, cluster, map[string]string{"example.com/a": "1"})
	env.ExpectAnnotated(t, cluster, map[string]string{"example.com/a": ""})
	Consistently(t, 300*time.Millisecond, "the cluster stays without annotations", func() error {
		if len(cluster.Annotations) > 0 {
			return errors.New("expected no annotation")
		}
		return nil
	})
	ExpectNoError(t, env.Client.Delete(t.Context(), cluster))
	env.WaitForDeletion(t, cluster)
}

// becomesHealthy is a controller that sets a condition and records an event.
func becomesHealthy(mgr manager.Manager) reconcile.Func {
	return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		cluster := &mocov1beta2.MySQLCluster{}
		if err := mgr.GetClient().Get(ctx, r.NamespacedName, cluster); err != nil || len(cluster.Status.Conditions) > 0 {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		mgr.GetEventRecorder("test").Eventf(cluster, nil, corev1.EventTypeNormal, "Healed", "Heal", "the cluster is well")
		before := cluster.DeepCopy()
		cluster.Status.Conditions = []metav1.Condition{{
			Type: "Healthy", Status: metav1.ConditionTrue, Reason: "AsWished", Message: "all is well", LastTransitionTime: metav1.Unix(1, 0),
		}}
		return reconcile.Result{}, mgr.GetClient().SubResource("status").Patch(ctx, cluster, client.MergeFrom(before))
	}
}

func TestLogBufferFeedsLoggers(t *testing.T) {
	log := &LogBuffer{}
	log.Logger(1).V(1).Info("first", "key", "a")
	log.StructuredLogger().Debug("second", "key", "b")
	for _, want := range []string{"first", "second", `"key"="a"`, "key=b"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("expected %q in the log, found %q", want, log)
		}
	}
	if last := log.LastLines(1); strings.Contains(last, "first") || !strings.Contains(last, "second") {
		t.Errorf("expected the second line only, found %q", last)
	}
}

func TestGrantedRightsHoldAtOnce(t *testing.T) {
	env := StartAPIServer(t)
	env.GrantRights(t, "ada", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}})
	for user, mayList := range map[string]bool{"ada": true, "eve": false} {
		c, err := client.New(env.ImpersonateUser(user), client.Options{Scheme: env.Client.Scheme(), Mapper: env.Client.RESTMapper()})
		ExpectNoError(t, err)
		if err := c.List(t.Context(), &corev1.NamespaceList{}); (err == nil) != mayList {
			t.Errorf("%s lists namespaces: expected that to be allowed: %t, found %v", user, mayList, err)
		}
	}
}
