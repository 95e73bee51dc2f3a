// SPDX-License-Identifier: Apache-2.0

// Package mysqlpods plays the StatefulSet and the kubelet for a MySQLCluster in tests: its Pods are real MySQL servers, if
// wanted behind links that can be cut.
package mysqlpods

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

// The users of an instance beside the product's: an application's, and one that may do everything.
const (
	AppUser, AppPassword   = "app", "app"
	RootUser, RootPassword = "root", "root"
)

// users are those that an instance is born with.
const users = mysqld.ProductUsers + `create user 'app'@'%' identified by 'app';
grant select, insert, update, delete, create, drop, lock tables on *.* to 'app'@'%';
create user 'root'@'%' identified by 'root';
grant all on *.* to 'root'@'%';
`

// PodCluster is a MySQLCluster of a hub, and its Pods.
type PodCluster struct {
	Env  *testenv.Environment
	Name types.NamespacedName
	// Servers are by ordinal. Clients on the same node as a Pod reach its server directly.
	Servers []*mysqld.Server
	// Network lies between the Pods and their clients; nil if they are reached directly.
	Network *PodNetwork

	mu   sync.Mutex
	pods []*corev1.Pod
}

// StartCluster starts size servers, which know nothing of each other, and makes their Pods and the Secret. With linked, the Pods'
// addresses lead through links that can be cut.
func StartCluster(t testing.TB, hub *testenv.Environment, size int, linked bool) *PodCluster {
	t.Helper()
	c := &PodCluster{Env: hub, Name: types.NamespacedName{Namespace: hub.CreateNamespace(t), Name: "test"}, pods: make([]*corev1.Pod, size)}
	bed := mysqld.NewInstallation(t, users)
	for range size {
		c.Servers = append(c.Servers, bed.StartServer(t))
	}
	if linked {
		c.Network = newNetwork(t, c.Servers)
	}
	c.createIfAbsent(t, BuildPasswordSecret(c.Name))
	// The API server takes no Pod before its service account exists, and no controller makes it here.
	c.createIfAbsent(t, BuildServiceAccount(c.Name.Namespace))
	for i := range size {
		testenv.ExpectNoError(t, c.ReplacePod(t.Context(), i))
		c.startProbe(t, i)
	}
	return c
}

// BuildPasswordSecret has the passwords of a cluster's servers.
func BuildPasswordSecret(name types.NamespacedName) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: "moco-" + name.Name},
		StringData: map[string]string{
			"ADMIN_PASSWORD": mysqld.AdminPassword, "REPLICATION_PASSWORD": mysqld.ReplicationPassword, "CLONE_DONOR_PASSWORD": mysqld.DonorPassword,
		},
	}
}

// BuildServiceAccount is what the API server wants before it takes Pods.
func BuildServiceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
}

// CreateMySQLCluster makes the MySQLCluster itself.
func (c *PodCluster) CreateMySQLCluster(t testing.TB) {
	t.Helper()
	c.createIfAbsent(t, testenv.BuildMySQLCluster(t, c.Name, len(c.Servers)))
}

func (c *PodCluster) createIfAbsent(t testing.TB, obj client.Object) {
	t.Helper()
	if err := client.IgnoreAlreadyExists(c.Env.Client.Create(t.Context(), obj)); err != nil {
		t.Fatalf("create: %v", err)
	}
}

// PodAddresses are the addresses of the Pods, by ordinal.
func (c *PodCluster) PodAddresses() []string {
	var hosts []string
	for i, s := range c.Servers {
		host := s.Address
		if c.Network != nil {
			host = c.Network.links[i].address
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// GetMySQLCluster reads the MySQLCluster.
func (c *PodCluster) GetMySQLCluster(ctx context.Context) (*mocov1beta2.MySQLCluster, error) {
	cluster := &mocov1beta2.MySQLCluster{}
	if err := c.Env.Client.Get(ctx, c.Name, cluster); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	return cluster, nil
}

// AnnotateMySQLCluster sets an annotation of the MySQLCluster; an empty value takes it away.
func (c *PodCluster) AnnotateMySQLCluster(ctx context.Context, name, value string) error {
	text := `null`
	if value != "" {
		text = `"` + value + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"%s":%s}}}`, name, text)
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Name.Namespace, Name: c.Name.Name}}
	if err := c.Env.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("annotate the cluster: %w", err)
	}
	return nil
}

// PodKey is the name of an instance's Pod.
func (c *PodCluster) PodKey(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Name.Namespace, Name: fmt.Sprintf("moco-%s-%d", c.Name.Name, i)}
}

// FindPrimaryPod finds the instance whose Pod has the label of the primary, as a Service does; -1 if there is none.
func (c *PodCluster) FindPrimaryPod(ctx context.Context) (int, error) {
	var list corev1.PodList
	err := c.Env.Client.List(ctx, &list, client.InNamespace(c.Name.Namespace), client.MatchingLabels{
		mocov1beta2.InstanceLabel: c.Name.Name, mocov1beta2.RoleLabel: string(mocov1beta2.RolePrimary),
	})
	if err != nil {
		return -1, fmt.Errorf("look for the primary's Pod: %w", err)
	}
	for _, pod := range list.Items {
		for i := range c.Servers {
			if strings.HasSuffix(pod.Name, fmt.Sprintf("-%d", i)) {
				return i, nil
			}
		}
	}
	return -1, nil
}

const (
	probeTick    = 200 * time.Millisecond
	probeTimeout = time.Second
)

// BuildPod is an instance's Pod as the StatefulSet makes it.
func BuildPod(cluster types.NamespacedName, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: fmt.Sprintf("moco-%s-%d", cluster.Name, i),
			Labels: map[string]string{
				mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.InstanceLabel: cluster.Name, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
			},
		},
		Spec: corev1.PodSpec{
			Containers:         []corev1.Container{{Name: mocov1beta2.MysqldContainer, Image: "mysql"}},
			ServiceAccountName: "default", AutomountServiceAccountToken: new(false),
		},
	}
}

// ReportPod is what the kubelet reports of a Pod.
func ReportPod(ctx context.Context, c client.Client, pod *corev1.Pod, address string, ready bool) error {
	before := pod.DeepCopy()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{condition}
	if err := c.SubResource("status").Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("report the Pod %s: %w", pod.Name, err)
	}
	return nil
}

// ReplacePod deletes a Pod, if there is one, and makes it anew. Its server is the caller's business.
func (c *PodCluster) ReplacePod(ctx context.Context, i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.pods[i]; old != nil {
		if err := c.Env.Client.Delete(ctx, old, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the Pod %s: %w", old.Name, err)
		}
	}
	pod := BuildPod(c.Name, i)
	if err := c.Env.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("make the Pod %s: %w", pod.Name, err)
	}
	c.pods[i] = pod
	return ReportPod(ctx, c.Env.Client, pod, c.PodAddresses()[i], acceptsConnections(ctx, c.Servers[i].Address))
}

// startProbe reports whether a Pod is ready until the test ends. A node that is cut off reports nothing.
func (c *PodCluster) startProbe(t testing.TB, i int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var probes sync.WaitGroup
	probes.Go(func() {
		tick := time.NewTicker(probeTick)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			is := acceptsConnections(ctx, c.Servers[i].Address)
			// The probe reaches the server past the network, but its report would not leave a node that is cut off.
			if ctx.Err() != nil || c.Network != nil && c.Network.IsCut(i) {
				continue
			}
			if err := c.reportReadiness(ctx, i, is); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		probes.Wait()
	})
}

func (c *PodCluster) reportReadiness(ctx context.Context, i int, is bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.pods[i]
	if was := pod.Status.Conditions[0].Status == corev1.ConditionTrue; was == is {
		return nil
	}
	return ReportPod(ctx, c.Env.Client, pod, c.PodAddresses()[i], is)
}

func acceptsConnections(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(mysqld.Port)))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
