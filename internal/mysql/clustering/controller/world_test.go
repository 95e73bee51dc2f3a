// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

const (
	size      = 3
	probeTick = 200 * time.Millisecond
	theName   = "test"
)

// users are those that an instance is born with.
const users = `create user 'moco-admin'@'%' identified by 'secret-a';
grant all on *.* to 'moco-admin'@'%' with grant option;
create user 'moco-repl'@'%' identified by 'secret-r';
grant replication slave, replication client on *.* to 'moco-repl'@'%';
create user 'moco-clone-donor'@'%' identified by 'secret-d';
grant backup_admin, service_connection_admin on *.* to 'moco-clone-donor'@'%';
create user 'app'@'%' identified by 'app';
grant select, insert, update, delete, create, drop, lock tables on *.* to 'app'@'%';
create user 'root'@'%' identified by 'root';
grant all on *.* to 'root'@'%';
`

// world is a hub, a MySQLCluster, and the test in the kubelet's place: Pods that are real servers.
type world struct {
	hub     *testenv.Environment
	name    types.NamespacedName
	servers []*mysqld.Server
	metrics *Metrics
	log     *testLog
	clock   shifted
}

// shifted is a clock that is ahead of the real one.
type shifted struct{ ahead time.Duration }

// Now implements clock.PassiveClock.
func (s shifted) Now() time.Time { return clock.RealClock{}.Now().Add(s.ahead) }

// Since implements clock.PassiveClock.
func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// newWorld makes a hub with the CRDs and a namespace, without any server.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{hub: testenv.StartAPIServer(t), log: &testLog{}}
	w.hub.InstallCRDs(t)
	w.name = types.NamespacedName{Namespace: w.hub.CreateNamespace(t), Name: theName}
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("the manager's log:\n%s", w.log)
		}
		if strings.Contains(w.log.String(), "secret-") {
			t.Error("the log shows a password")
		}
	})
	return w
}

// addServers starts an instance for each Pod and makes the Pods and their Secret.
func (w *world) addServers(t *testing.T) {
	t.Helper()
	bed := mysqld.NewInstallation(t, users)
	for range size {
		w.servers = append(w.servers, bed.StartServer(t))
	}
	w.addSecret(t)
	for i := range size {
		w.addPod(t, i)
	}
}

func (w *world) addSecret(t *testing.T) {
	t.Helper()
	w.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name.Namespace, Name: "moco-" + theName},
		StringData: map[string]string{adminKey: "secret-a", replicationKey: "secret-r", donorKey: "secret-d"},
	})
}

// addPod makes a Pod and probes its server until the test ends.
func (w *world) addPod(t *testing.T, i int) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.name.Namespace, Name: fmt.Sprintf("moco-%s-%d", theName, i),
			Labels: map[string]string{
				mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.InstanceLabel: theName, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: mocov1beta2.MysqldContainer, Image: "mysql"}}, ServiceAccountName: "default", AutomountServiceAccountToken: new(false)},
	}
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.name.Namespace, Name: "default"}})
	w.create(t, pod)
	w.setReady(t.Context(), t, pod, w.servers[i].Address, true)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var probes sync.WaitGroup
	probes.Go(func() {
		tick := time.NewTicker(probeTick)
		defer tick.Stop()
		was := true
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if is := answers(ctx, w.servers[i].Address); is != was && ctx.Err() == nil {
				was = is
				w.setReady(ctx, t, pod, w.servers[i].Address, is)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		probes.Wait()
	})
}

func answers(ctx context.Context, address string) bool {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(mysqld.Port)))
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// setReady is what the kubelet reports.
func (w *world) setReady(ctx context.Context, t *testing.T, pod *corev1.Pod, address string, is bool) {
	t.Helper()
	status := pod.Status.DeepCopy()
	status.Phase, status.PodIP, status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if is {
		status.Conditions[0].Status = corev1.ConditionTrue
	}
	before := pod.DeepCopy()
	pod.Status = *status
	if err := w.hub.Client.SubResource("status").Patch(ctx, pod, client.MergeFrom(before)); err != nil && ctx.Err() == nil {
		t.Errorf("report a Pod: %v", err)
	}
}

func (w *world) create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := client.IgnoreAlreadyExists(w.hub.Client.Create(t.Context(), obj)); err != nil {
		t.Fatalf("create: %v", err)
	}
}

func (w *world) addCluster(t *testing.T, annotations map[string]string) {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := json.Unmarshal([]byte(fmt.Sprintf(manifest, size)), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Namespace, cluster.Name, cluster.Annotations = w.name.Namespace, w.name.Name, annotations
	w.create(t, cluster)
}

const manifest = `{"apiVersion": "moco.cybozu.com/v1beta2", "kind": "MySQLCluster", "metadata": {}, "spec": {
	"replicas": %d, "podTemplate": {"spec": {"containers": [{"name": "mysqld", "image": "mysql"}]}},
	"volumeClaimTemplates": [{"metadata": {"name": "mysql-data"},
		"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}`

// start runs a manager with the controller for the rest of the test, or until stop.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(w.hub.Config, manager.Options{
		Scheme: known, Logger: funcr.New(w.log.write, funcr.Options{Verbosity: 1}),
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.metrics = NewMetrics()
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string {
		if i >= len(w.servers) {
			return "nowhere"
		}
		return w.servers[i].Address
	}
	if err := (Controller{HostOf: host, Clock: w.clock, Metrics: w.metrics}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) cluster(t *testing.T) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := w.hub.Client.Get(t.Context(), w.name, cluster); err != nil {
		t.Fatalf("get the cluster: %v", err)
	}
	return cluster
}

// becomes waits until a condition has a status and a reason, as in "True Healthy".
func (w *world) becomes(t *testing.T, kind, want string) *mocov1beta2.MySQLCluster {
	t.Helper()
	var cluster *mocov1beta2.MySQLCluster
	testenv.Eventually(t, kind+" becomes "+want, func() error {
		cluster = w.cluster(t)
		c := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if c == nil {
			return errors.New("there is no such condition")
		}
		if found := string(c.Status) + " " + c.Reason; found != want {
			return fmt.Errorf("found %s: %s", found, c.Message)
		}
		return nil
	})
	return cluster
}

// annotate sets annotations; an empty value takes one away.
func (w *world) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	cluster := w.cluster(t)
	before := cluster.DeepCopy()
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	for name, value := range annotations {
		if value == "" {
			delete(cluster.Annotations, name)
			continue
		}
		cluster.Annotations[name] = value
	}
	if err := w.hub.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatalf("annotate: %v", err)
	}
}

func (w *world) stopClustering(t *testing.T) {
	t.Helper()
	w.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
}

func (w *world) startClustering(t *testing.T) {
	t.Helper()
	w.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: ""})
}

// testLog is a log that can be read while it is written.
type testLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *testLog) write(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, said, _ := strings.Cut(args, `"msg"=`)
	fmt.Fprintln(&l.text, clock.RealClock{}.Now().Format(time.StampMilli), prefix, said)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// secret is the Secret with the cluster's passwords.
func (w *world) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := w.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: w.name.Namespace, Name: "moco-" + theName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}
