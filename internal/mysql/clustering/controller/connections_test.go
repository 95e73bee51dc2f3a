// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestFailedWatchesCauseAPass covers a server that accepts no connections, so every watch fails immediately.
func TestFailedWatchesCauseAPass(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	manager := newConnManager(now)
	conns := manager.connsOf(testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: "ns", Name: clusterName}, instances))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: corev1.PodStatus{PodIP: "127.0.0.1"}}
	conn, err := conns.connect(0, pod, func() (*sqlclient.Server, error) {
		server, err := sqlclient.OpenServer("127.0.0.1", sqlclient.Account{}, nil)
		return server, errors.Join(err, server.Close())
	})
	testenv.ExpectNoError(t, err)
	t.Cleanup(conns.closeAll)
	watch := func() (looks int) {
		t.Helper()
		if !conns.watchReplication(t.Context(), conn) {
			t.Fatal("expected the replica to be watched")
		}
		manager.goroutines.Wait()
		if conns.watchReplication(t.Context(), conn) {
			t.Fatal("expected the pass after the watch to begin none")
		}
		for ; len(manager.lost) > 0; looks++ {
			<-manager.lost
		}
		return looks
	}
	testenv.ExpectEqual(t, "looks after the first watch that failed", 1, watch())
	testenv.ExpectEqual(t, "looks after one that failed right then", 0, watch())
	now.SetTime(now.Now().Add(failedWatchInterval - time.Second))
	testenv.ExpectEqual(t, "looks after one that failed too soon", 0, watch())
	now.SetTime(now.Now().Add(time.Second))
	testenv.ExpectEqual(t, "looks after one that failed later", 1, watch())
}
