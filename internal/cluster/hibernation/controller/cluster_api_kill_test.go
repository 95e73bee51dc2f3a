// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// mortalTarget is the API server of a cluster. When the manager changes a MachineHealthCheck, it kills the manager or
// refuses the change.
type mortalTarget struct {
	kubeconfig []byte
	kill       atomic.Pointer[killSwitch]
	refuses    atomic.Bool
}

func newMortalTarget(t *testing.T, e *env) *mortalTarget {
	t.Helper()
	host, err := url.Parse(e.Config.Host)
	testenv.ExpectNoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(host)
	forward.Transport, err = rest.TransportFor(e.Config)
	testenv.ExpectNoError(t, err)
	m := &mortalTarget{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kill := m.kill.Load()
		isChange := r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/machinehealthchecks/")
		switch {
		case isChange && m.refuses.Load():
			w.WriteHeader(http.StatusForbidden)
			return
		case !isChange || kill == nil:
			forward.ServeHTTP(w, r)
			return
		}
		err := kill.perform("change the pause of the health check", func() error {
			forward.ServeHTTP(w, r)
			return nil
		})
		if err != nil {
			panic(http.ErrAbortHandler) // The manager never receives an answer.
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig, err := clientcmd.LoadFromFile(e.KubeconfigPath(t))
	testenv.ExpectNoError(t, err)
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	m.kubeconfig, err = clientcmd.Write(*kubeconfig)
	testenv.ExpectNoError(t, err)
	return m
}

// TestManagersThatDieAtEachActKeepPauses lets each manager do one action, and kills it before or after the action.
// The cluster still hibernates and resumes, no machine is replaced, and each controller ends in its earlier state.
func TestManagersThatDieAtEachActKeepPauses(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.installMachineControllers(t)
	e.cloud.SetLatency(t, machineLatency, machineLatency)
	target := newMortalTarget(t, e)
	s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, nil)
	s.putSecret(t, adminSecret, map[string][]byte{kubeconfigKey: target.kubeconfig})
	before := s.stateOf(t, s.objects()...)
	const groups = 3
	s.setPowerState(t, hivev1.PowerStateHibernating)
	expectPauses(t, e.killUntilSettled(t, s.testCluster, hivev1.PowerStateHibernating, groups, target))
	s.setPowerState(t, hivev1.PowerStateRunning)
	expectPauses(t, e.killUntilSettled(t, s.testCluster, hivev1.PowerStateRunning, 0, target))
	testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
	s.expectSameMachines(t)
}

// expectPauses expects that managers were killed before and after each change to a pause.
func expectPauses(t *testing.T, acts map[string]int) {
	t.Helper()
	for _, act := range []string{"change the pause of the Cluster", "change the pause of the health check"} {
		if acts[act] < 2 {
			t.Errorf("expected managers to be killed before and after %q, found %v", act, acts)
		}
	}
}
