// SPDX-License-Identifier: Apache-2.0

// Package mysqlpods simulates the StatefulSet controller and the kubelet for a MySQLCluster in tests. Its Pods are
// real MySQL servers, optionally behind links that can be cut.
package mysqlpods

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// The users of an instance in addition to the product's: a user of an application, and a user with all privileges.
const (
	AppUser, AppPassword   = "app", "app"
	RootUser, RootPassword = "root", "root"
)

// users creates the initial users of an instance in addition to the product's.
const users = `create user 'app'@'%' identified by 'app';
grant select, insert, update, delete, create, drop, lock tables on *.* to 'app'@'%';
create user 'root'@'%' identified by 'root';
grant all on *.* to 'root'@'%' with grant option;
`

// PodCluster is a MySQLCluster on a hub, with its Pods.
type PodCluster struct {
	Env  *testenv.Environment
	Name types.NamespacedName
	// Servers holds the servers by ordinal. Clients on the same node as a Pod connect to its server directly.
	Servers []*mysqld.Server
	// Installation is the servers' installation.
	Installation *mysqld.Installation
	// Network connects the Pods and their clients; nil if Pods are reached directly.
	Network *PodNetwork
	// WithoutCertificates creates Pods without a volume for certificates, like Pods of older versions. The servers
	// still use certificates.
	WithoutCertificates bool
	// TLSSecret is the Secret with the Pods' certificates; empty means the cluster's own.
	TLSSecret string

	mu   sync.Mutex
	pods []*corev1.Pod
}

// ClusterOptions define the name of a cluster, and which faults it supports.
type ClusterOptions struct {
	// Name is the cluster's name in an existing namespace; empty means "test" in a new namespace.
	Name types.NamespacedName
	// RestartsCrashed restarts servers that crash, as the kubelet does.
	RestartsCrashed bool
	// ResolvesNames makes the servers resolve the host names of the Pods, which requires root.
	ResolvesNames bool
	// IsLinked routes the Pods' addresses through links that can be cut.
	IsLinked bool
	// VolumeMegabytes is the size of the instances' volumes; 0 means no separate volume.
	VolumeMegabytes int
	// TakesOverCopies lets the instances create the product's accounts at each start.
	TakesOverCopies bool
	// Settings are additional lines of my.cnf for the instances.
	Settings []string
	// LaterPods is the number of additional servers whose Pods ScaleTo creates.
	LaterPods int
}

// StartCluster starts independent servers, and creates the Secret and the Pods of the first size servers.
func StartCluster(t testing.TB, hub *testenv.Environment, size int, options ClusterOptions) *PodCluster {
	t.Helper()
	c := &PodCluster{Env: hub, Name: options.Name, pods: make([]*corev1.Pod, size+options.LaterPods)}
	if c.Name.Name == "" {
		c.Name = types.NamespacedName{Namespace: hub.CreateNamespace(t), Name: "test"}
	}
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers()+users, fmt.Sprintf("*.moco-%s.%s.svc", c.Name.Name, c.Name.Namespace))
	bed.VolumeMegabytes, bed.TakesOverCopies, bed.Settings = options.VolumeMegabytes, options.TakesOverCopies, options.Settings
	bed.RestartsCrashed = options.RestartsCrashed
	if options.ResolvesNames {
		bed.HostsFile = filepath.Join(t.TempDir(), "hosts")
		testenv.ExpectNoError(t, os.WriteFile(bed.HostsFile, nil, 0o600))
	}
	c.Installation = bed
	c.Servers = bed.StartServers(t, len(c.pods))
	if options.IsLinked {
		c.Network = newNetwork(t, c.Servers)
	}
	if options.ResolvesNames {
		testenv.ExpectNoError(t, os.WriteFile(bed.HostsFile, []byte(c.listHosts()), 0o600))
	}
	c.createIfAbsent(t, BuildPasswordSecret(c.Name))
	c.createIfAbsent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Name.Namespace, Name: c.tlsSecretName()}, Data: bed.Certificates})
	// The API server rejects Pods before their ServiceAccount exists, and no controller creates it in tests.
	c.createIfAbsent(t, BuildServiceAccount(c.Name.Namespace))
	for i := range size {
		testenv.ExpectNoError(t, c.ReplacePod(t.Context(), i))
		c.startProbe(t, i)
	}
	return c
}

// listHosts returns the host names of the Pods with their addresses, in the format of /etc/hosts.
func (c *PodCluster) listHosts() string {
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Name.Namespace, Name: c.Name.Name}}
	var text strings.Builder
	for i, address := range c.PodAddresses() {
		fmt.Fprintln(&text, address, cluster.InstanceHost(i))
	}
	return text.String()
}

func (c *PodCluster) tlsSecretName() string { return "moco-" + c.Name.Name + "-tls" }

// BuildPasswordSecret returns the Secret with the passwords of a cluster's servers.
func BuildPasswordSecret(name types.NamespacedName) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: "moco-" + name.Name},
		Data:       mysqld.ProductPasswords(),
	}
}

// BuildServiceAccount returns the service account that the API server requires for Pods.
func BuildServiceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
}

// CreateMySQLCluster creates the MySQLCluster, with the instances that have Pods.
func (c *PodCluster) CreateMySQLCluster(t testing.TB) {
	t.Helper()
	c.createIfAbsent(t, testenv.BuildMySQLCluster(t, c.Name, c.countPods()))
}

func (c *PodCluster) countPods() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pods) - len(slices.DeleteFunc(slices.Clone(c.pods), func(p *corev1.Pod) bool { return p != nil }))
}

// ScaleTo requests a number of instances and, if the API server accepts this, creates the missing Pods, as the
// StatefulSet controller would.
func (c *PodCluster) ScaleTo(t testing.TB, size int) error {
	t.Helper()
	if err := c.patchMySQLCluster(t.Context(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, size)); err != nil {
		return err
	}
	for i := c.countPods(); i < size; i++ {
		if err := c.ReplacePod(t.Context(), i); err != nil {
			return err
		}
		c.startProbe(t, i)
	}
	return nil
}

func (c *PodCluster) createIfAbsent(t testing.TB, obj client.Object) {
	t.Helper()
	if err := client.IgnoreAlreadyExists(c.Env.Client.Create(t.Context(), obj)); err != nil {
		t.Fatalf("create: %v", err)
	}
}

// PodAddresses returns the addresses of the Pods, by ordinal.
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

// AnnotateMySQLCluster sets an annotation of the MySQLCluster; an empty value removes it.
func (c *PodCluster) AnnotateMySQLCluster(ctx context.Context, name, value string) error {
	text := `null`
	if value != "" {
		text = `"` + value + `"`
	}
	return c.patchMySQLCluster(ctx, fmt.Sprintf(`{"metadata":{"annotations":{"%s":%s}}}`, name, text))
}

func (c *PodCluster) patchMySQLCluster(ctx context.Context, patch string) error {
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Name.Namespace, Name: c.Name.Name}}
	if err := c.Env.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("patch the cluster: %w", err)
	}
	return nil
}

// PodKey returns the name of an instance's Pod.
func (c *PodCluster) PodKey(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Name.Namespace, Name: fmt.Sprintf("moco-%s-%d", c.Name.Name, i)}
}

// FindPrimaryPod returns the instance whose Pod has the primary's label, as a Service selects it; -1 if no Pod has
// the label.
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

// BuildPod returns an instance's Pod as the StatefulSet controller would create it.
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
			SchedulerName: "none", // No kubelet runs the Pod.
		},
	}
}

// ReportPod writes a Pod's status as the kubelet would.
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

// ReplacePod deletes a Pod, if it exists, and creates a new one. The caller must restart or wipe its server.
func (c *PodCluster) ReplacePod(ctx context.Context, i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.pods[i]; old != nil {
		if err := c.Env.Client.Delete(ctx, old, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the Pod %s: %w", old.Name, err)
		}
	}
	pod := BuildPod(c.Name, i)
	if !c.WithoutCertificates {
		pod.Spec.Volumes = []corev1.Volume{{Name: mocov1beta2.TLSVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: cmp.Or(c.TLSSecret, c.tlsSecretName())}}}}
	}
	if err := c.Env.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("create the Pod %s: %w", pod.Name, err)
	}
	c.pods[i] = pod
	return ReportPod(ctx, c.Env.Client, pod, c.PodAddresses()[i], acceptsConnections(ctx, c.Servers[i].Address))
}

// startProbe reports the readiness of a Pod until the test ends, except while the node is cut off.
func (c *PodCluster) startProbe(t testing.TB, i int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var probes sync.WaitGroup
	probe := newReadinessProbe(t, c.Servers[i], c.readAgentPassword)
	probes.Go(func() {
		defer func() { _ = probe.db.Close() }() // The server may have ended.
		tick := time.NewTicker(probeTick)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			is := probe.isReady(ctx)
			// The probe connects to the server directly, but a node that is cut off cannot report.
			if ctx.Err() != nil || c.Network != nil && c.Network.IsCut(i) {
				continue
			}
			// The test may have deleted the Pod. After another error the next probe reports again, as the kubelet does.
			if err := client.IgnoreNotFound(c.reportReadiness(ctx, i, is)); err != nil && ctx.Err() == nil {
				t.Log(err)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		probes.Wait()
	})
}

// readAgentPassword returns the agent's password as the probe reads it: from a file that the kubelet writes from the
// cluster's Secret, and that remains if the Secret is gone.
func (c *PodCluster) readAgentPassword(ctx context.Context) string {
	secret, key := BuildPasswordSecret(c.Name), mysqlusers.PasswordKeyOf(mysqlusers.AgentUser)
	first := string(secret.Data[key])
	if err := c.Env.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil || len(secret.Data[key]) == 0 {
		return first
	}
	return string(secret.Data[key])
}

func (c *PodCluster) reportReadiness(ctx context.Context, i int, is bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.pods[i]
	if was := pod.Status.Conditions[0].Status == corev1.ConditionTrue; was == is {
		return nil
	}
	before := pod.DeepCopy()
	err := ReportPod(ctx, c.Env.Client, pod, c.PodAddresses()[i], is)
	if err != nil {
		c.pods[i] = before // The write failed, so the next probe reports again.
	}
	return err
}

func acceptsConnections(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(mysqld.Port)))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// readinessProbe queries a server as the product's probe does. A server is ready if it answers and no replication
// thread is stopped. A server that accepts no connections becomes unready immediately, and otherwise after four seconds
// of failed probes.
type readinessProbe struct {
	address      string
	db           *sql.DB
	failingSince time.Time
	clock        clock.RealClock
}

const (
	failureTime = 4 * time.Second
	// loginInterval is the lifetime of a probe's connection. The kubelet's probe logs in each time, so that a wrong
	// password makes the Pod unready.
	loginInterval = 2 * time.Second
	readyQuestion = `select count(*) = 0 from performance_schema.replication_connection_status c
		join performance_schema.replication_applier_status a using (channel_name)
		where c.channel_name = '' and (c.service_state = 'OFF' or a.service_state = 'OFF')`
)

// newReadinessProbe returns a probe that logs in with the cluster's current password, because after two rotations
// the first password is no longer valid.
func newReadinessProbe(t testing.TB, s *mysqld.Server, readPassword func(context.Context) string) *readinessProbe {
	t.Helper()
	c := driver.NewConfig()
	testenv.ExpectNoError(t, c.Apply(driver.BeforeConnect(func(ctx context.Context, c *driver.Config) error {
		c.Passwd = readPassword(ctx)
		return nil
	})))
	c.User = mysqlusers.AgentUser
	c.Net, c.Addr, c.Logger = "tcp", net.JoinHostPort(s.Address, strconv.Itoa(mysqld.AdminPort)), &driver.NopLogger{}
	c.TLSConfig = "preferred"
	c.Params = map[string]string{"max_execution_time": "0", "sql_big_selects": "1"} // As the probe of a Pod sets them.
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	db.SetConnMaxLifetime(loginInterval)
	return &readinessProbe{address: s.Address, db: db}
}

func (p *readinessProbe) isReady(ctx context.Context) bool {
	if p.askServer(ctx) {
		p.failingSince = time.Time{}
		return true
	}
	if !acceptsConnections(ctx, p.address) {
		return false
	}
	if p.failingSince.IsZero() {
		p.failingSince = p.clock.Now()
	}
	return p.clock.Since(p.failingSince) < failureTime
}

// askServer returns the server's answer, or false without an answer in time.
func (p *readinessProbe) askServer(ctx context.Context) (isReady bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := p.db.QueryRowContext(ctx, readyQuestion).Scan(&isReady)
	return err == nil && isReady
}

// CutMode defines how a node is cut off from all others, in both directions.
type CutMode int

// The modes of a cut.
const (
	// DropPackets drops all packets without ending connections. Data that is sent during the cut arrives when the cut
	// ends.
	DropPackets CutMode = iota + 1
	// ResetConnections resets all existing and new connections.
	ResetConnections
)

// notAnInstance is the opener of a connection that was not opened by an instance.
const notAnInstance = -1

// PodNetwork connects the Pods and their clients by a link in front of each server, with the Pod's address. A
// connection belongs to the instance to which it leads, and to the instance whose server has opened it.
type PodNetwork struct {
	servers []*mysqld.Server
	links   []*podLink

	mu  sync.Mutex
	tap io.Writer
	// fromManager are the instances that are cut off only from the manager.
	fromManager map[int]bool
	cuts        map[int]CutMode
	holes       map[int]chan struct{} // A channel is closed when its cut ends.
	connections map[*linkConnection]struct{}
}

type podLink struct {
	address   string
	listeners []net.Listener
}

type linkConnection struct {
	to, from int
	// isManagers is true for a connection that no instance has opened and that leads to the admin port.
	isManagers bool
	client     net.Conn
	server     net.Conn
	done       chan struct{}
	once       sync.Once
}

func newNetwork(t testing.TB, servers []*mysqld.Server) *PodNetwork {
	t.Helper()
	n := &PodNetwork{servers: servers, fromManager: map[int]bool{}, cuts: map[int]CutMode{}, holes: map[int]chan struct{}{}, connections: map[*linkConnection]struct{}{}}
	for i, s := range servers {
		network := s.Address[:strings.LastIndex(s.Address, ".")]
		n.links = append(n.links, &podLink{address: network + "." + strconv.Itoa(101+i)})
		testenv.ExpectNoError(t, n.OpenLink(t.Context(), i))
	}
	t.Cleanup(func() {
		for i := range servers {
			n.HealCut(i)
			n.CloseLink(i)
		}
	})
	return n
}

// OpenLink listens on an instance's address, as its server does while it runs.
func (n *PodNetwork) OpenLink(ctx context.Context, i int) error {
	var config net.ListenConfig
	for _, port := range []int{mysqld.Port, mysqld.AdminPort} {
		address := net.JoinHostPort(n.links[i].address, strconv.Itoa(port))
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("link instance %d: %w", i, err)
		}
		n.mu.Lock()
		n.links[i].listeners = append(n.links[i].listeners, listener)
		n.mu.Unlock()
		target := net.JoinHostPort(n.servers[i].Address, strconv.Itoa(port))
		go n.serveLink(context.WithoutCancel(ctx), i, listener, target)
	}
	return nil
}

// CloseLink stops listening for an instance whose server is gone, and ends its connections. Clients behind a cut do
// not notice this.
func (n *PodNetwork) CloseLink(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links[i].listeners {
		_ = l.Close() // The listener is closed even if Close fails.
	}
	n.links[i].listeners = nil
	if n.cuts[i] == 0 {
		n.endConnections(i)
	}
}

// CutOff cuts an instance off.
func (n *PodNetwork) CutOff(i int, how CutMode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[i] = how
	switch how {
	case DropPackets:
		n.holes[i] = make(chan struct{})
	case ResetConnections:
		n.endConnections(i)
	}
}

// CutOffFromManager cuts an instance off from only the manager. Clients and replicas can still connect to it.
func (n *PodNetwork) CutOffFromManager(i int, how CutMode) {
	n.mu.Lock()
	n.fromManager[i] = true
	n.mu.Unlock()
	n.CutOff(i, how)
}

// HealCut ends a cut.
func (n *PodNetwork) HealCut(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.fromManager, i)
	if hole := n.holes[i]; hole != nil {
		close(hole)
	}
	delete(n.holes, i)
	delete(n.cuts, i)
}

// IsCut reports whether an instance is cut off, and not only from the manager.
func (n *PodNetwork) IsCut(i int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[i] != 0 && !n.fromManager[i]
}

// hides reports whether a cut of an instance affects a connection. The caller holds the lock.
func (n *PodNetwork) hides(i int, p *linkConnection) bool { return !n.fromManager[i] || p.isManagers }

// endConnections resets all connections of an instance. The caller holds the lock.
func (n *PodNetwork) endConnections(i int) {
	for p := range n.connections {
		if (p.to == i || p.from == i) && n.hides(i, p) {
			p.resetBothSides()
		}
	}
}

func (n *PodNetwork) serveLink(ctx context.Context, i int, listener net.Listener, target string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		from := n.findOpener(conn)
		isManagers := from == notAnInstance && strings.HasSuffix(target, ":"+strconv.Itoa(mysqld.AdminPort))
		go n.carryConnection(ctx, &linkConnection{to: i, from: from, isManagers: isManagers, client: conn, done: make(chan struct{})}, target)
	}
}

// carryConnection copies bytes until one side ends, and then ends the other side, unless a cut hides the end.
func (n *PodNetwork) carryConnection(ctx context.Context, p *linkConnection, target string) {
	defer p.resetBothSides()
	if !n.registerConnection(p) {
		return
	}
	defer n.forgetConnection(p)
	n.waitWhileCut(p)
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	if !n.joinServer(p, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { n.copyBytes(p, server, p.client) })
	both.Go(func() { n.copyBytes(p, p.client, server) })
	both.Wait()
}

// joinServer adds the connection to the server, and reports false if the connection from the client has already
// ended.
func (n *PodNetwork) joinServer(p *linkConnection, server net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-p.done:
		_ = server.Close() // The connection was not used.
		return false
	default:
		p.server = server
		return true
	}
}

func (n *PodNetwork) copyBytes(p *linkConnection, to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		// Wait after the read, so that data that was in transit when the network was cut arrives only when it heals.
		n.waitWhileCut(p)
		n.overhear(buffer[:size])
		if size > 0 {
			if _, failed := to.Write(buffer[:size]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			n.mu.Lock()
			p.resetBothSides()
			n.mu.Unlock()
			return
		}
	}
}

// TapInto copies all further traffic to a writer.
func (n *PodNetwork) TapInto(w io.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tap = w
}

func (n *PodNetwork) overhear(passing []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tap != nil {
		_, _ = n.tap.Write(passing) // Errors of the tap are ignored.
	}
}

// waitWhileCut returns when no cut separates the two ends, or when the connection has ended.
func (n *PodNetwork) waitWhileCut(p *linkConnection) {
	for {
		n.mu.Lock()
		var hole chan struct{}
		for _, i := range []int{p.to, p.from} {
			if hole == nil && n.hides(i, p) {
				hole = n.holes[i]
			}
		}
		n.mu.Unlock()
		if hole == nil {
			return
		}
		select {
		case <-hole:
		case <-p.done:
			return
		}
	}
}

func (n *PodNetwork) registerConnection(p *linkConnection) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range []int{p.to, p.from} {
		if n.cuts[i] == ResetConnections && n.hides(i, p) {
			return false
		}
	}
	n.connections[p] = struct{}{}
	return true
}

func (n *PodNetwork) forgetConnection(p *linkConnection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.connections, p)
}

func (p *linkConnection) resetBothSides() {
	p.once.Do(func() {
		close(p.done)
		for _, conn := range []net.Conn{p.client, p.server} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // The connection is closed in any case.
				_ = tcp.Close()
			}
		}
	})
}

// findOpener returns the instance whose server has opened a connection. Every loopback connection comes from the
// same address, so only the kernel's tables can identify the server.
func (n *PodNetwork) findOpener(conn net.Conn) int {
	// The kernel returns the table in pages, so a line can be missing while other lines change. A connection of a
	// replica that is not identified would pass through a cut.
	const looks = 5
	for range looks {
		if inode := findPeerSocket(conn); inode != "" {
			return n.findSocketOwner("socket:[" + inode + "]")
		}
	}
	return notAnInstance
}

// findPeerSocket returns the inode of the socket at the other end of a connection on this machine, or "" if the socket
// is not found. Both addresses are compared, because two connections may use the same port if they lead to different
// addresses.
func findPeerSocket(conn net.Conn) (inode string) {
	local, remote := formatTableAddress(conn.RemoteAddr()), formatTableAddress(conn.LocalAddr())
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[1] == local && fields[2] == remote {
			return fields[9]
		}
	}
	return ""
}

// formatTableAddress formats an IPv4 address as /proc/net/tcp does.
func formatTableAddress(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || tcp.IP.To4() == nil {
		return ""
	}
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(tcp.IP.To4()), tcp.Port)
}

// findSocketOwner returns the instance whose server holds a socket.
func (n *PodNetwork) findSocketOwner(socket string) int {
	for i, s := range n.servers {
		dir := fmt.Sprintf("/proc/%d/fd", s.PID())
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // The server has just ended.
		}
		for _, file := range files {
			if link, err := os.Readlink(dir + "/" + file.Name()); err == nil && link == socket {
				return i
			}
		}
	}
	return notAnInstance
}
