// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// seen is what the status of a MySQLCluster tells.
type seen struct {
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

func (w *world) see(t *testing.T, cluster string) seen {
	t.Helper()
	var s seen
	if err := json.Unmarshal([]byte(w.kubectl(t, "get", "mysqlcluster", cluster, "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// is compares a condition's status; a reason or a part of the message may follow.
func (s seen) is(kind string, want metav1.ConditionStatus, parts ...string) error {
	for _, c := range s.Status.Conditions {
		if c.Type != kind {
			continue
		}
		told := fmt.Sprintf("%s: %s", c.Reason, c.Message)
		if c.Status == want && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(told, part) }) {
			return nil
		}
		return fmt.Errorf("condition %s: expected %s with %q, found %s with %q", kind, want, parts, c.Status, told)
	}
	return fmt.Errorf("expected a condition %s, found none", kind)
}

// healthy waits until the cluster has n Pods, is Healthy, and no rollout is under way.
func (w *world) healthy(t *testing.T, cluster string) seen {
	t.Helper()
	var s seen
	eventually(t, cluster+" is healthy", func() error {
		s = w.see(t, cluster)
		return errors.Join(s.is("Healthy", metav1.ConditionTrue), s.is("StatefulSetReady", metav1.ConditionTrue))
	})
	return s
}

// columns expects what kubectl prints of the cluster test, blanks apart.
func (w *world) columns(t *testing.T, want string) {
	t.Helper()
	const head = "NAME AVAILABLE HEALTHY PRIMARY SYNCED REPLICAS ERRANT REPLICAS CLUSTERING ACTIVE RECONCILE ACTIVE LAST BACKUP"
	out := w.kubectl(t, "get", "mysqlcluster", "test")
	got := strings.Join(strings.Fields(out), " ")
	if got != head+" "+want {
		t.Errorf("columns: expected %q, found:\n%s", want, out)
	}
	t.Logf("kubectl get mysqlcluster test\n%s", out)
}

// pod is what a Pod tells.
type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (p pod) role() string { return p.Metadata.Labels["moco.cybozu.com/role"] }

func (p pod) ready() bool {
	return p.Metadata.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Ready" && c.Status == metav1.ConditionTrue
	})
}

// pods of the cluster test by name.
func (w *world) pods(t *testing.T) map[string]pod {
	t.Helper()
	var list struct {
		Items []pod `json:"items"`
	}
	out := w.kubectl(t, "get", "pods", "-l", "app.kubernetes.io/created-by=moco,app.kubernetes.io/instance=test", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	byName := map[string]pod{}
	for _, p := range list.Items {
		byName[p.Metadata.Name] = p
	}
	return byName
}

func podName(index int) string { return fmt.Sprintf("moco-test-%d", index) }

// killServer sends SIGKILL to the server in a Pod, which is a process of this machine too.
func (w *world) killServer(t *testing.T, p pod) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, folder := range folders {
		groups, _ := os.ReadFile(filepath.Join(folder, "cgroup")) // Processes end while they are looked at.
		name, _ := os.ReadFile(filepath.Join(folder, "comm"))
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(folder), "%d", &pid); err != nil || string(name) != "mysqld\n" || !strings.Contains(string(groups), string(p.Metadata.UID)) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("servers in %s: expected one, found %d", p.Metadata.Name, killed)
	}
}
