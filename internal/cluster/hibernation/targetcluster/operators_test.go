// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

func TestSignsOfLifeOfOperators(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 24, 12, minute, 0, 0, time.UTC) }
	condition := func(kind, status string, minute int) string {
		return fmt.Sprintf(`{"type":%q,"status":%q,"lastTransitionTime":%q}`, kind, status, at(minute).Format(time.RFC3339))
	}
	operator := func(related string, conditions ...string) string {
		return fmt.Sprintf(`{"metadata":{"name":"etcd"},"status":{"conditions":[%s],"relatedObjects":[%s]}}`, strings.Join(conditions, ","), related)
	}
	lease := func(namespace string, taken, renewed int) string {
		return fmt.Sprintf(`{"metadata":{"namespace":%q},"spec":{"acquireTime":%q,"renewTime":%q}}`, namespace, at(taken).Format("2006-01-02T15:04:05.000000Z07:00"), at(renewed).Format("2006-01-02T15:04:05.000000Z07:00"))
	}
	const own, operand = `{"resource":"namespaces","name":"openshift-etcd-operator"}`, `{"resource":"namespaces","name":"openshift-etcd"}`
	ready := []string{condition("Available", "True", 1), condition("Degraded", "False", 2), condition("Progressing", "False", 3), condition("Upgradeable", "False", 0)}
	for name, row := range map[string]struct {
		operator, lease string
		want            hibernation.ObservedOperator
	}{
		"newest change to a condition is a sign of life":                          {operator(own, ready...), lease("elsewhere", 5, 9), hibernation.ObservedOperator{Name: "etcd", LastSeen: at(3)}},
		"operator's own lease is a sign of life":                                  {operator(own, ready...), lease("openshift-etcd-operator", 5, 9), hibernation.ObservedOperator{Name: "etcd", LastSeen: at(9)}},
		"lease that was just acquired does not count":                             {operator(own, ready...), lease("openshift-etcd-operator", 9, 9), hibernation.ObservedOperator{Name: "etcd", LastSeen: at(3)}},
		"lease of the operand does not count":                                     {operator(own+","+operand, ready...), lease("openshift-etcd", 5, 9), hibernation.ObservedOperator{Name: "etcd", LastSeen: at(3)}},
		"lease in any namespace counts for an operator without its own namespace": {operator(operand, ready...), lease("openshift-etcd", 5, 9), hibernation.ObservedOperator{Name: "etcd", LastSeen: at(9)}},
		"leases of nodes do not count":                                            {operator(`{"resource":"namespaces","name":"kube-node-lease"}`, ready...), lease("kube-node-lease", 5, 9), hibernation.ObservedOperator{Name: "etcd", LastSeen: at(3)}},
		"operator with Available False is not available":                          {operator(own, condition("Available", "False", 4)), "", hibernation.ObservedOperator{Name: "etcd", Problem: "not available", IsBroken: true, LastSeen: at(4)}},
		"operator with Available Unknown is not available":                        {operator(own, condition("Available", "Unknown", 4)), "", hibernation.ObservedOperator{Name: "etcd", Problem: "not available", IsBroken: true, LastSeen: at(4)}},
		"operator with Degraded True is degraded":                                 {operator(own, condition("Available", "True", 1), condition("Degraded", "True", 4)), "", hibernation.ObservedOperator{Name: "etcd", Problem: "degraded", IsBroken: true, LastSeen: at(4)}},
		"operator with Progressing True is progressing":                           {operator(own, condition("Progressing", "True", 4)), "", hibernation.ObservedOperator{Name: "etcd", Problem: "progressing", LastSeen: at(4)}},
		"operator that is progressing and degraded is broken":                     {operator(own, condition("Progressing", "True", 4), condition("Degraded", "True", 1)), "", hibernation.ObservedOperator{Name: "etcd", Problem: "progressing", IsBroken: true, LastSeen: at(4)}},
		"operator without conditions has no sign of life":                         {operator(""), "", hibernation.ObservedOperator{Name: "etcd"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialOperators(t, http.StatusOK, row.operator, row.lease)
			got, err := c.ListOperators(t.Context())
			must(t, err)
			if diff := cmp.Diff([]hibernation.ObservedOperator{row.want}, got); diff != "" {
				t.Errorf("operators (-want +got):\n%s", diff)
			}
		})
	}
	for status, isError := range map[int]bool{http.StatusNotFound: false, http.StatusForbidden: false, http.StatusInternalServerError: true} {
		if got, err := dialOperators(t, status, "", "").ListOperators(t.Context()); len(got) > 0 || (err != nil) != isError {
			t.Errorf("status %d: found %v (%v)", status, got, err)
		}
	}
}

// TestProblemsOfOperatorsNeedNoLeases uses a server that does not serve leases.
func TestProblemsOfOperatorsNeedNoLeases(t *testing.T) {
	const degraded = `{"metadata":{"name":"etcd"},"status":{"conditions":[{"type":"Degraded","status":"True"}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != operatorsPath {
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, degraded)
	}))
	t.Cleanup(server.Close)
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	must(t, err)
	t.Cleanup(c.Close)
	got, err := c.ListOperatorProblems(t.Context())
	must(t, err)
	if diff := cmp.Diff([]hibernation.ObservedOperator{{Name: "etcd", Problem: "degraded", IsBroken: true}}, got); diff != "" {
		t.Errorf("operators (-want +got):\n%s", diff)
	}
}

// dialOperators connects to a server with one operator and one lease.
func dialOperators(t *testing.T, status int, operator, lease string) *ClusterClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case operatorsPath:
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, operator)
		case leasesPath:
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, lease)
		}
	}))
	t.Cleanup(server.Close)
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}
