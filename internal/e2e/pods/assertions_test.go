// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterView is a MySQLCluster as a client reads it.
type clusterView struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions   []metav1.Condition `json:"conditions"`
		Primary      int                `json:"currentPrimaryIndex"`
		RestoredTime *metav1.Time       `json:"restoredTime"`
		Backup       struct {
			Time *metav1.Time `json:"time"`
		} `json:"backup"`
	} `json:"status"`
}

func (e *podsEnv) readCluster(t *testing.T, cluster string) clusterView {
	t.Helper()
	var s clusterView
	if err := json.Unmarshal([]byte(e.kubectl(t, "get", "mysqlcluster", cluster, "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// expectCondition compares a condition's status, and parts of its reason and message.
func (s clusterView) expectCondition(kind string, want metav1.ConditionStatus, parts ...string) error {
	for _, c := range s.Status.Conditions {
		if c.Type != kind {
			continue
		}
		found := fmt.Sprintf("%s: %s", c.Reason, c.Message)
		if c.Status == want && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(found, part) }) {
			return nil
		}
		return fmt.Errorf("condition %s: expected %s with %q, found %s with %q", kind, want, parts, c.Status, found)
	}
	return fmt.Errorf("expected a condition %s, found none", kind)
}

// waitUntilHealthy waits until the cluster is Healthy, and no rollout is under way.
func (e *podsEnv) waitUntilHealthy(t *testing.T, cluster string) clusterView {
	t.Helper()
	var s clusterView
	eventually(t, cluster+" is healthy", func() error {
		s = e.readCluster(t, cluster)
		return errors.Join(s.expectCondition("Healthy", metav1.ConditionTrue), s.expectCondition("StatefulSetReady", metav1.ConditionTrue))
	})
	return s
}

// expectColumns compares what kubectl prints of the cluster test, blanks apart.
func (e *podsEnv) expectColumns(t *testing.T, want string) {
	t.Helper()
	const head = "NAME AVAILABLE HEALTHY PRIMARY SYNCED REPLICAS ERRANT REPLICAS CLUSTERING ACTIVE RECONCILE ACTIVE LAST BACKUP"
	out := e.kubectl(t, "get", "mysqlcluster", "test")
	got := strings.Join(strings.Fields(out), " ")
	if got != head+" "+want {
		t.Errorf("columns: expected %q, found:\n%s", want, out)
	}
	t.Logf("kubectl get mysqlcluster test\n%s", out)
}

// podView is a Pod as a client reads it.
type podView struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (p podView) role() string { return p.Metadata.Labels["moco.cybozu.com/role"] }

func (p podView) ready() bool {
	return p.Metadata.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Ready" && c.Status == metav1.ConditionTrue
	})
}

// listPods of the cluster test by name.
func (e *podsEnv) listPods(t *testing.T) map[string]podView {
	t.Helper()
	var list struct {
		Items []podView `json:"items"`
	}
	out := e.kubectl(t, "get", "pods", "-l", "app.kubernetes.io/created-by=moco,app.kubernetes.io/instance=test", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	byName := map[string]podView{}
	for _, p := range list.Items {
		byName[p.Metadata.Name] = p
	}
	return byName
}

func podName(index int) string { return fmt.Sprintf("moco-test-%d", index) }

// killServer sends SIGKILL to the server in a Pod, which is a process of this machine too.
func killServer(t *testing.T, p podView) {
	t.Helper()
	servers := slices.DeleteFunc(findPodProcesses(t, string(p.Metadata.UID)), func(p podProcess) bool { return p.name != "mysqld" })
	if len(servers) != 1 {
		t.Fatalf("servers in %s: expected one, found %d", p.Metadata.Name, len(servers))
	}
	if err := syscall.Kill(servers[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
