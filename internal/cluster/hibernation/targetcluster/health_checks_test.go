// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

const (
	openShiftChecks     = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinehealthchecks"
	clusterAPIChecks    = "/apis/cluster.x-k8s.io/v1beta1/machinehealthchecks"
	newClusterAPIChecks = "/apis/cluster.x-k8s.io/v1beta2/machinehealthchecks"
)

// servedChecks are the items of each path of a server, and the last change that the server received.
type servedChecks struct {
	items  map[string]string
	change string
}

func (s *servedChecks) dial(t *testing.T) *ClusterClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			s.change = r.URL.Path + " " + string(body)
			_, _ = io.WriteString(w, "{}")
			return
		}
		items, isServed := s.items[r.URL.Path]
		if !isServed {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"items":[%s]}`, items)
	}))
	t.Cleanup(server.Close)
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	must(t, err)
	return c
}

func checkNamed(namespace, name, annotations string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":"u","resourceVersion":"7","annotations":{%s}}}`, namespace, name, annotations)
}

func TestHealthChecksOfBothProjectsAreListed(t *testing.T) {
	const ours, theirs = `"cluster.x-k8s.io/paused":"torpor.dev/machine-groups"`, `"cluster.x-k8s.io/paused":""`
	ofOpenShift, ofClusterAPI := hibernation.NewHealthCheckGroup, hibernation.NewClusterAPIHealthCheckGroup
	for name, row := range map[string]struct {
		items map[string]string
		want  []actuator.Group
	}{
		"cluster without the kinds has no health checks": {nil, nil},
		"health check of OpenShift is listed":            {map[string]string{openShiftChecks: checkNamed("openshift-machine-api", "w", "")}, []actuator.Group{ofOpenShift("w", hibernation.NotPaused)}},
		"health checks of Cluster API in two namespaces are listed with their pauses": {
			map[string]string{clusterAPIChecks: checkNamed("a", "w", ours) + "," + checkNamed("b", "w", theirs)},
			[]actuator.Group{ofClusterAPI("a", "w", hibernation.PausedByUs), ofClusterAPI("b", "w", hibernation.PausedByOther)},
		},
		"health checks that are served in two versions are listed once": {
			map[string]string{clusterAPIChecks: checkNamed("a", "w", ""), newClusterAPIChecks: checkNamed("a", "w", "")},
			[]actuator.Group{ofClusterAPI("a", "w", hibernation.NotPaused)},
		},
		"health checks that are served in the newer version only are listed": {
			map[string]string{newClusterAPIChecks: checkNamed("a", "w", "")}, []actuator.Group{ofClusterAPI("a", "w", hibernation.NotPaused)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := (&servedChecks{items: row.items}).dial(t).ListHealthChecks(t.Context())
			must(t, err)
			var groups []actuator.Group
			for _, check := range found {
				groups = append(groups, check.Group)
			}
			if diff := cmp.Diff(row.want, groups); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListsOfHealthChecksAreBounded(t *testing.T) {
	var many []string
	for i := range maxHealthChecks + 1 {
		many = append(many, checkNamed("a", fmt.Sprintf("w%d", i), ""))
	}
	for name, row := range map[string]struct {
		items string
		want  error
	}{
		"maximum number of health checks is listed":        {strings.Join(many[:maxHealthChecks], ","), nil},
		"more health checks than the maximum are an error": {strings.Join(many, ","), errTooManyHealthChecks},
		"name with a path traversal is an error":           {checkNamed("a", "../w", ""), errMalformed},
		"namespace with a slash is an error":               {checkNamed("a/b", "w", ""), errMalformed},
	} {
		_, err := (&servedChecks{items: map[string]string{clusterAPIChecks: row.items}}).dial(t).ListHealthChecks(t.Context())
		if !errors.Is(err, row.want) {
			t.Errorf("%s: expected %v, found %v", name, row.want, err)
		}
	}
}

func TestHealthCheckIsChangedWhereItWasRead(t *testing.T) {
	s := &servedChecks{items: map[string]string{newClusterAPIChecks: checkNamed("a", "w", "")}}
	c := s.dial(t)
	found, err := c.ListHealthChecks(t.Context())
	must(t, err)
	for isPause, value := range map[bool]string{true: `"torpor.dev/machine-groups"`, false: "null"} {
		must(t, c.ChangeHealthCheck(t.Context(), HealthCheckChange{HealthCheck: found[0], IsPause: isPause}))
		want := "/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machinehealthchecks/w " +
			`{"metadata":{"annotations":{"cluster.x-k8s.io/paused":` + value + `},"resourceVersion":"7","uid":"u"}}`
		if s.change != want {
			t.Errorf("expected the change %s, found %s", want, s.change)
		}
	}
}
