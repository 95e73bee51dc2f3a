// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// TargetProxy is a proxy in front of a target cluster. It counts connections, and can leave them unanswered.
type TargetProxy struct {
	// Kubeconfig gives administrator access to the cluster, through the proxy.
	Kubeconfig []byte
	Accepted   atomic.Int64
	IsHung     atomic.Bool
}

// StartTargetProxy starts a proxy in front of a cluster, which runs until the test ends.
func StartTargetProxy(t testing.TB, target *Environment) *TargetProxy {
	t.Helper()
	p := &TargetProxy{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(target.KubeconfigPath(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = "https://" + listener.Addr().String()
	}
	if p.Kubeconfig, err = clientcmd.Write(*kubeconfig); err != nil {
		t.Fatal(err)
	}
	server := strings.TrimPrefix(target.Config.Host, "https://")
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.Accepted.Add(1)
			open.Go(func() { p.serve(t.Context(), conn, server) })
		}
	})
	t.Cleanup(func() { _ = listener.Close() })
	return p
}

func (p *TargetProxy) serve(ctx context.Context, conn net.Conn, server string) {
	defer func() { _ = conn.Close() }()
	if p.IsHung.Load() {
		_, _ = io.Copy(io.Discard, conn) // Read until the client closes the connection.
		return
	}
	next, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = next.Close() }()
	go func() {
		_, _ = io.Copy(next, conn)
		_ = next.Close()
	}()
	_, _ = io.Copy(conn, next)
}

// OverrideServer replaces the address in a cluster's kubeconfig with an address that does not answer. The
// ClusterDeployment gets the address of the proxy.
func (e *Environment) OverrideServer(t testing.TB, cd *hivev1.ClusterDeployment, proxy *TargetProxy) {
	t.Helper()
	kubeconfig, err := clientcmd.Load(proxy.Kubeconfig)
	ExpectNoError(t, err)
	var address string
	for _, cluster := range kubeconfig.Clusters {
		address, cluster.Server = strings.TrimPrefix(cluster.Server, "https://"), "https://127.0.0.1:1"
	}
	dead, err := clientcmd.Write(*kubeconfig)
	ExpectNoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name}}
	ExpectPatched(t, e, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"kubeconfig": dead} })
	ExpectPatched(t, e, cd, func(cd *hivev1.ClusterDeployment) {
		cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIURLOverride: address}
	})
}

// WakeCluster writes the status that the hibernation controller reports for a running cluster, after a resume that
// began at the given time; nil means no resume.
func (e *Environment) WakeCluster(t testing.TB, cd *hivev1.ClusterDeployment, resume *metav1.Time) {
	t.Helper()
	e.reportPower(t, cd, func(cd *hivev1.ClusterDeployment) {
		if cd.Spec.PowerState = hivev1.PowerStateRunning; resume != nil {
			cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: *resume, ResumeStartedAt: resume}
		}
		meta.SetStatusCondition(&cd.Status.Conditions, metav1.Condition{Type: hivev1.ClusterUnreachableCondition, Status: metav1.ConditionFalse, Reason: hivev1.ClusterReachableReason})
	})
}

// PutClusterToSleep writes the status that the hibernation controller reports for a hibernating cluster.
func (e *Environment) PutClusterToSleep(t testing.TB, cd *hivev1.ClusterDeployment) {
	t.Helper()
	e.reportPower(t, cd, func(cd *hivev1.ClusterDeployment) {
		cd.Spec.PowerState = hivev1.PowerStateHibernating
		meta.SetStatusCondition(&cd.Status.Conditions, metav1.Condition{Type: hivev1.ClusterUnreachableCondition, Status: metav1.ConditionTrue, Reason: hivev1.ClusterAsleepReason})
	})
}

func (e *Environment) reportPower(t testing.TB, cd *hivev1.ClusterDeployment, change func(*hivev1.ClusterDeployment)) {
	t.Helper()
	ExpectPatched(t, e, cd, change)
	change(cd) // The response to the patch has overwritten the status in the object.
	if err := e.Client.Status().Update(t.Context(), cd); err != nil {
		t.Fatal(err)
	}
}

// ExpectWakeAfterExpiredStop expects a predicate to accept the resume of a cluster whose stop has expired but is
// still in its status.
func ExpectWakeAfterExpiredStop(t testing.TB, mayDial func(*hivev1.ClusterDeployment, time.Time) bool, changed predicate.Predicate) {
	t.Helper()
	before := &hivev1.ClusterDeployment{}
	before.Status.ScheduledStops = []torporv1alpha1.ScheduledStop{{
		Slumber: "night", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(time.Unix(1000, 0)), Requested: true}}, ExpiresAt: new(metav1.NewTime(time.Unix(2000, 0))),
	}}
	before.Status.Conditions = []metav1.Condition{{Type: hivev1.ClusterUnreachableCondition, Status: metav1.ConditionTrue}}
	after := before.DeepCopy()
	after.Status.Conditions[0].Status = metav1.ConditionFalse
	if now := time.Unix(3000, 0); mayDial(before, now) || !mayDial(after, now) {
		t.Fatal("expected no connection to the cluster before its API server answers")
	}
	if !changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("expected the resume to pass the predicate")
	}
	if changed.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after.DeepCopy()}) {
		t.Error("expected an unchanged object not to pass the predicate")
	}
}
