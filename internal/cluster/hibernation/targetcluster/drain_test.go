// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

func TestDecodePod(t *testing.T) {
	build := func(metadata string) string {
		return `{"metadata":{"namespace":"shop","name":"web-0","uid":"u"` + metadata + `},"spec":{"nodeName":"n1"}}`
	}
	ownedBy := func(kind string, isController bool) string {
		return fmt.Sprintf(`,"ownerReferences":[{"kind":%q,"name":"web","uid":"o","controller":%t}]`, kind, isController)
	}
	web := hibernation.ObservedPod{Namespace: "shop", Name: "web-0", UID: "u", Node: "n1"}
	leaving, bare := web, web
	leaving.IsLeaving, bare.IsBare = true, true
	for name, row := range map[string]struct {
		item      string
		want      hibernation.ObservedPod
		isDrained bool
		err       error
	}{
		"pod of a ReplicaSet is part of the drain":                          {build(ownedBy("ReplicaSet", true)), web, true, nil},
		"pod that is being deleted is part of the drain":                    {build(ownedBy("ReplicaSet", true) + `,"deletionTimestamp":"2026-01-02T03:04:05Z"`), leaving, true, nil},
		"pod without an owner is part of the drain":                         {build(""), bare, true, nil},
		"pod with an owner that is not its controller is part of the drain": {build(ownedBy("Backup", false)), bare, true, nil},
		"pod of a DaemonSet is not part of the drain":                       {build(ownedBy("DaemonSet", true)), web, false, nil},
		"static pod is not part of the drain":                               {build(`,"annotations":{"kubernetes.io/config.mirror":"x"}`), bare, false, nil},
		"pod name with a path traversal is refused":                         {`{"metadata":{"namespace":"shop","name":"../../nodes/n1","uid":"u"}}`, hibernation.ObservedPod{}, false, errMalformed},
		"malformed namespace is refused":                                    {`{"metadata":{"namespace":"","name":"web-0","uid":"u"}}`, hibernation.ObservedPod{}, false, errMalformed},
		"number instead of a pod is refused":                                {`7`, hibernation.ObservedPod{}, false, errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, isDrained, err := decodePod([]byte(row.item))
			if diff := cmp.Diff(row.want, got); diff != "" || isDrained != row.isDrained || !errors.Is(err, row.err) {
				t.Errorf("drained %t, error %v, pod (-want +got):\n%s", isDrained, err, diff)
			}
		})
	}
}

// drainServer records its requests. The name of a pod determines the response to its eviction.
func drainServer(t *testing.T, pods int) (client *ClusterClient, asked func() []string) {
	t.Helper()
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet:
			var items []string
			for i := range pods {
				items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"web-%d","uid":"u"},"spec":{"nodeName":"n%d"}}`, i, i%2))
			}
			_, _ = io.WriteString(w, `{"items":[`+strings.Join(items, ",")+`]}`)
		case strings.Contains(r.URL.Path, "kept"):
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget"}]}}`)
		case strings.Contains(r.URL.Path, "refused"), strings.Contains(r.URL.Path, "denied"), strings.Contains(r.URL.Path, "early"), strings.Contains(r.URL.Path, "ending"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, forbidden(r.URL.Path))
		case strings.Contains(r.URL.Path, "gone"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`)
		case strings.Contains(r.URL.Path, "broken"):
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
		default:
			_, _ = io.WriteString(w, `{}`)
		}
	}))
	t.Cleanup(server.Close)
	client, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	must(t, err)
	t.Cleanup(client.Close)
	return client, func() []string {
		defer func() { requests = nil }()
		return requests
	}
}

// forbidden returns the message of a refusal: by the authorizer, because of incomplete roles, by a webhook, or
// because the namespace is being deleted.
func forbidden(path string) string {
	message, cause := `pods \"x\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"shop\"`, ""
	switch {
	case strings.Contains(path, "denied"):
		message = `admission webhook \"guard\" denied the request: its data moves first`
	case strings.Contains(path, "early"):
		message += `: RBAC: clusterrole.rbac.authorization.k8s.io \"admin\" not found`
	case strings.Contains(path, "ending"):
		cause = `"details":{"causes":[{"reason":"NamespaceTerminating"}]},`
	}
	return `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden",` + cause + `"message":"` + message + `"}`
}

func TestDrainedPodsAreBounded(t *testing.T) {
	worker := hibernation.ObservedNode{RecordedNode: hivev1.RecordedNode{Name: "n1"}}
	master := hibernation.ObservedNode{RecordedNode: hivev1.RecordedNode{Name: "n0", ControlPlane: true}}
	for pods, want := range map[int]int{0: 0, 10: 5, 2*maxDrainedPods + 1: maxDrainedPods, 2*maxDrainedPods + 2: maxDrainedPods} {
		client, _ := drainServer(t, pods)
		found, err := client.ListWorkerPods(t.Context(), []hibernation.ObservedNode{master, worker})
		if hasMore := pods/2 > maxDrainedPods; err != nil || !found.IsRead || found.HasMore != hasMore || len(found.Pods) != want {
			t.Errorf("%d pods: expected %d of the worker, found %d, more: %t, error %v", pods, want, len(found.Pods), found.HasMore, err)
		}
	}
}

func TestDrainsReportFailedSteps(t *testing.T) {
	client, asked := drainServer(t, 0)
	pod := func(name string) hibernation.ObservedPod {
		return hibernation.ObservedPod{Namespace: "shop", Name: name, UID: "uid-" + name}
	}
	job := &lookJob{toDrain: Drain{
		Cordon: []hibernation.NodeVersion{{Name: "n1", UID: "u1", ResourceVersion: "7"}}, Uncordon: []hibernation.NodeVersion{{Name: "n2", UID: "u2", ResourceVersion: "8"}},
		Evict: []hibernation.ObservedPod{pod("kept"), pod("gone"), pod("web")},
	}}
	job.drain(t.Context(), client, time.Unix(1, 0))
	if diff := cmp.Diff(DrainResult{At: time.Unix(1, 0), Kept: []string{"shop/kept"}}, job.drained); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	want := []string{
		`PATCH /api/v1/nodes/n1 {"metadata":{"annotations":{"torpor.dev/cordoned":"true"},"resourceVersion":"7","uid":"u1"},"spec":{"unschedulable":true}}`,
		`PATCH /api/v1/nodes/n2 {"metadata":{"annotations":{"torpor.dev/cordoned":null},"resourceVersion":"8","uid":"u2"},"spec":{"unschedulable":false}}`,
	}
	requests := asked()
	if diff := cmp.Diff(want, requests[:2]); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(requests[2], "POST /api/v1/namespaces/shop/pods/gone/eviction ") || !strings.Contains(requests[2], `"preconditions":{"uid":"uid-gone"}`) || len(requests) != 5 {
		t.Errorf("expected evictions of the pods that were seen, found %q", requests[2:])
	}

	job = &lookJob{toDrain: Drain{Evict: []hibernation.ObservedPod{pod("broken"), pod("web")}}}
	job.drain(t.Context(), client, time.Unix(1, 0))
	if text := DescribeError(job.drained.Err); text != "the server responds with 500" || len(asked()) != 2 {
		t.Errorf("expected the error of one pod, and the other one evicted, found %q", text)
	}
	(&lookJob{}).drain(t.Context(), client, time.Unix(1, 0))
	if requests := asked(); len(requests) != 0 {
		t.Errorf("expected nothing to be asked for, found %q", requests)
	}
}

func TestDrainsReportPermanentRefusals(t *testing.T) {
	client, asked := drainServer(t, 0)
	job := &lookJob{toDrain: Drain{Cordon: []hibernation.NodeVersion{{Name: "refused", UID: "uid-node"}}}}
	for _, name := range []string{"refused-0", "denied", "early", "ending", "kept", "broken", "web", "refused-1"} {
		job.toDrain.Evict = append(job.toDrain.Evict, hibernation.ObservedPod{Namespace: "shop", Name: name, UID: "uid-" + name})
	}
	job.drain(t.Context(), client, time.Unix(1, 0))
	want := map[string]bool{"refused": true, "shop/refused-0": true, "shop/refused-1": true}
	if diff := cmp.Diff(want, job.drained.Refused); diff != "" || len(asked()) != 9 {
		t.Errorf("refused permanently (-want +got):\n%s", diff)
	}
	if text := DescribeError(job.drained.Err); text != "the kubeconfig's user lacks a permission (403)" {
		t.Errorf("expected that the user may not, found %q", text)
	}

	cluster := &pooledCluster{}
	for i, attempt := range []struct {
		after   time.Duration
		refused string
		want    map[string]bool
	}{
		{0, "a", map[string]bool{"a": true}},
		{drainPause, "b", map[string]bool{"a": true, "b": true}},
		{drainPause, "", map[string]bool{"a": true, "b": true}},
		{2 * refusalMemory, "c", map[string]bool{"c": true}},
	} {
		at := cluster.drained.At.Add(attempt.after)
		if i == 0 {
			at = time.Unix(1, 0)
		}
		job := &lookJob{drained: DrainResult{At: at}}
		if attempt.refused != "" {
			job.drained.Refused = map[string]bool{attempt.refused: true}
		}
		cluster.noteDone(job)
		if diff := cmp.Diff(attempt.want, cluster.drained.Refused); diff != "" {
			t.Errorf("attempt %d: what is refused (-want +got):\n%s", i, diff)
		}
	}
}

func TestPodsAreEvictedInTurn(t *testing.T) {
	var pods []hibernation.ObservedPod
	for _, name := range []string{"c", "a", "b"} {
		pods = append(pods, hibernation.ObservedPod{Namespace: "shop", Name: name})
	}
	for last, want := range map[string]string{"": "abc", "shop/a": "bca", "shop/b": "cab", "shop/c": "abc", "zoo/a": "abc", "shop/aa": "bca"} {
		got := ""
		for p := range slices.Values(inTurn(pods, last)) {
			got += p.Name
		}
		if got != want {
			t.Errorf("after %q: expected %s, found %s", last, want, got)
		}
	}
}
