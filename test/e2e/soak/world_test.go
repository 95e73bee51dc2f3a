// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

const (
	system = "torpor-system"
	// machines is the number of machines of each cluster.
	machines = 3
	// replicas is the number of instances of each app, and of replicas of each Deployment.
	replicas = 2
	// scheduledLabel selects the objects that the Slumber stops.
	scheduledLabel = "soak/scheduled"
	running        = string(hivev1.PowerStateRunning)
	hibernating    = string(hivev1.PowerStateHibernating)
)

// listFleets returns the namespaces of the objects. They take turns: each second object is in the same namespace.
func listFleets() []string { return []string{"fleet-a", "fleet-b"} }

func fleetOf(index int) string { return listFleets()[index%len(listFleets())] }

// sizes is the number of objects of each kind. Of the databases, the first ones have real servers.
type sizes struct{ clusters, deployments, apps, databases, realDatabases, scheduled int }

func (n sizes) count() int { return n.clusters + n.deployments + n.apps + n.databases }

// world is a hub with clusters, apps, databases and Deployments, their cloud, and what users have requested.
type world struct {
	*testenv.Environment
	cloud   *testenv.CloudServer
	gate    *httptest.Server
	target  []byte
	sizes   sizes
	intents *intentLog
	found   *verdicts
	// databases are those with real servers.
	databases []*database
	// webhook is the address at which the API server calls the admission webhooks.
	webhook string
}

func newWorld(t *testing.T, n sizes) *world {
	t.Helper()
	w := &world{
		Environment: testenv.StartControlPlane(t, 2), cloud: testenv.StartCloud(t), sizes: n,
		intents: newIntentLog(), found: &verdicts{}, webhook: testenv.FreeAddress(t),
	}
	w.InstallCRDs(t)
	for _, name := range append(listFleets(), system) {
		w.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.InstallWebhooks(t, "https://"+w.webhook, nil)
	w.startGate(t)
	w.startTarget(t)
	return w
}

const startLatency, stopLatency = 8 * time.Second, 6 * time.Second

// createObjects creates all objects, and returns when they run. The managers have been started. The latencies of the
// cloud are then raised, so that the oracle can observe the time between an order and its effect.
func (w *world) createObjects(t *testing.T) {
	t.Helper()
	for _, fleet := range listFleets() {
		w.ExpectCreated(t,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: "cloud"}, Data: w.credentials()},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: "kubeconfig"}, Data: map[string][]byte{"kubeconfig": w.target}},
		)
	}
	for i := range w.sizes.clusters {
		w.createCluster(t, types.NamespacedName{Namespace: fleetOf(i), Name: fmt.Sprintf("cluster-%d", i)}, w.isScheduled(i))
	}
	for i := range w.sizes.deployments {
		w.createDeployment(t, types.NamespacedName{Namespace: fleetOf(i), Name: fmt.Sprintf("web-%d", i)}, w.isScheduled(i))
	}
	w.createDatabases(t)
	w.WaitForAppAdmission(t, fleetOf(0), korifiv1alpha1.FirstRevision)
	for i := range w.sizes.apps {
		w.createApp(t, types.NamespacedName{Namespace: fleetOf(i), Name: fmt.Sprintf("app-%d", i)})
	}
	w.cloud.SetLatency(t, startLatency, stopLatency)
}

// isScheduled reports whether a Slumber, and no user, stops the object with this index.
func (w *world) isScheduled(index int) bool { return index < w.sizes.scheduled }

func (w *world) credentials() map[string][]byte {
	data := w.cloud.CredentialsData()
	data["endpoint_url"] = []byte(w.gate.URL)
	return data
}

func (w *world) createCluster(t *testing.T, name types.NamespacedName, isScheduled bool) {
	t.Helper()
	w.cloud.RunInstances(t, name.Name, machines)
	cd := testenv.BuildClusterDeployment(name, "cloud", "kubeconfig")
	cd.Spec.PowerState = hivev1.PowerStateRunning
	if isScheduled {
		cd.Labels[scheduledLabel] = "true"
	}
	w.intents.begin(name.Name, running)(acknowledged)
	w.ExpectCreated(t, cd)
}

func (w *world) createDeployment(t *testing.T, name types.NamespacedName, isScheduled bool) {
	t.Helper()
	labels := map[string]string{"web": name.Name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{}}}
	if isScheduled {
		d.Labels[scheduledLabel] = "true"
	}
	d.Spec.Replicas, d.Spec.Selector = new(int32(replicas)), &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:1"}}
	w.intents.begin(name.Name, running)(acknowledged)
	w.ExpectCreated(t, d)
}

func (w *world) createApp(t *testing.T, name types.NamespacedName) {
	t.Helper()
	at, of := metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, korifiv1alpha1.Reference{Name: name.Name}
	process := at
	process.Name = "cf-proc-" + name.Name + "-web"
	app := testenv.BuildCFApp(name)
	app.Spec.DesiredState, app.Spec.CurrentDropletRef = korifiv1alpha1.StartedState, &of
	w.intents.begin(name.Name, started)(acknowledged)
	w.ExpectCreated(t,
		&korifiv1alpha1.CFPackage{ObjectMeta: at, Spec: korifiv1alpha1.CFPackageSpec{
			Type: korifiv1alpha1.DockerPackage, AppRef: of, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: "shop:1"}},
		}},
		&korifiv1alpha1.CFBuild{ObjectMeta: at, Spec: korifiv1alpha1.CFBuildSpec{
			PackageRef: of, AppRef: of, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
		}},
		&korifiv1alpha1.CFProcess{ObjectMeta: process, Spec: korifiv1alpha1.CFProcessSpec{
			AppRef: of, ProcessType: korifiv1alpha1.WebProcess, DesiredInstances: new(int32(replicas)), MemoryMB: 16, DiskQuotaMB: 16,
		}}, app)
}

const (
	// period is the period of the Slumber, which stops its objects in the first half.
	period      = 6
	stopMinutes = 3
)

// createSlumbers creates a Slumber of Deployments and clusters in each namespace, and records the intents of the windows
// until the end.
func (w *world) createSlumbers(t *testing.T, end time.Time) {
	t.Helper()
	selector := metav1.LabelSelector{MatchLabels: map[string]string{scheduledLabel: "true"}}
	target := func(kind string) []torporv1alpha1.SlumberTarget {
		return []torporv1alpha1.SlumberTarget{{Kind: kind, Selector: selector}}
	}
	s := &torporv1alpha1.Slumber{}
	s.Spec.TimeZone = "UTC"
	s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: fmt.Sprintf("*/%d * * * *", period), Wake: fmt.Sprintf("%d-59/%d * * * *", stopMinutes, period)}}
	s.Spec.Waves = []torporv1alpha1.SlumberWave{{Name: "web", Targets: target("Deployment")}, {Name: "clusters", Targets: target("ClusterDeployment")}}
	for _, fleet := range listFleets() {
		one := s.DeepCopy()
		one.Namespace, one.Name = fleet, "often"
		w.ExpectCreated(t, one)
	}
	for at := time.Now().Truncate(time.Minute).Add(-period * time.Minute); at.Before(end.Add(time.Hour)); at = at.Add(time.Minute) {
		value := map[int]string{0: hibernating, stopMinutes: running}[at.Minute()%period]
		for i := range w.sizes.scheduled {
			if value != "" {
				w.intents.schedule(fmt.Sprintf("cluster-%d", i), value, at)
				w.intents.schedule(fmt.Sprintf("web-%d", i), value, at)
			}
		}
	}
}

// order is a call that changes the state of machines.
type order struct {
	action, cluster string
	at              time.Time
}

// maxCall is the maximum size in bytes of a call.
const maxCall = 1 << 20

// startGate starts a proxy between the managers and the cloud, which judges each order before the cloud receives it.
func (w *world) startGate(t *testing.T) {
	t.Helper()
	to, err := url.Parse(w.cloud.URL)
	testenv.ExpectNoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	w.gate = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxCall))
		if err != nil {
			return // The client has disconnected.
		}
		w.judgeCall(t, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.gate.Close)
}

func (w *world) judgeCall(t *testing.T, body []byte) {
	t.Helper()
	call, err := url.ParseQuery(string(body))
	action := call.Get("Action")
	isDryRun := call.Get("DryRun") == "true"
	if err != nil || isDryRun || action != "StopInstances" && action != "StartInstances" {
		return
	}
	ordered := map[string]bool{}
	for name, values := range call {
		if strings.HasPrefix(name, "InstanceId.") {
			ordered[values[0]] = true
		}
	}
	at, states := time.Now(), map[string][]string{}
	for _, i := range w.cloud.ListInstances(t, "") {
		if ordered[i.ID] {
			states[clusterOf(i)] = append(states[clusterOf(i)], i.State)
		}
	}
	for cluster, of := range states {
		w.found.judgeOrder(w.intents, order{action, cluster, at}, of)
	}
}

// clusterOf returns the name of a machine's cluster. The machine has this name with a number.
func clusterOf(i testenv.CloudInstance) string {
	return i.Name[:max(0, strings.LastIndex(i.Name, "-"))]
}

// startTarget starts a server that answers for the API servers of all clusters. Its nodes always report.
func (w *world) startTarget(t *testing.T) {
	t.Helper()
	var nodes corev1.NodeList
	for i := range machines {
		nodes.Items = append(nodes.Items, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), UID: "uid"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	answer := func(value func() any) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(rw).Encode(value()) } // The client may have disconnected.
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("ok")) })
	mux.HandleFunc("/api/v1/nodes", answer(func() any { return nodes }))
	mux.HandleFunc("/apis/certificates.k8s.io/v1/certificatesigningrequests", answer(func() any { return map[string]any{"items": []any{}} }))
	mux.HandleFunc("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", answer(func() any {
		var leases coordinationv1.LeaseList
		for i := range machines {
			leases.Items = append(leases.Items, coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())},
			})
		}
		return leases
	}))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	c := clientcmdapi.NewConfig()
	c.Clusters["target"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: targetToken}
	c.Contexts["target"] = &clientcmdapi.Context{Cluster: "target", AuthInfo: "admin"}
	c.CurrentContext = "target"
	var err error
	w.target, err = clientcmd.Write(*c)
	testenv.ExpectNoError(t, err)
}

// targetToken is a secret in the kubeconfig of the clusters, which must not appear in any output.
const targetToken = "canary-of-the-targets-5d1f"

// countSecrets counts the outputs, events and statuses that contain a secret.
func (w *world) countSecrets(t *testing.T, outputs ...string) (count int) {
	t.Helper()
	var events corev1.EventList
	var clusters hivev1.ClusterDeploymentList
	testenv.ExpectNoError(t, errors.Join(w.Client.List(t.Context(), &events), w.Client.List(t.Context(), &clusters)))
	for _, list := range []any{events, clusters} {
		text, err := json.Marshal(list)
		testenv.ExpectNoError(t, err)
		outputs = append(outputs, string(text))
	}
	secrets := []string{targetToken, testenv.SecretKey, mysqld.AdminPassword, mysqld.ReplicationPassword}
	for _, text := range outputs {
		if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(text, s) }) {
			count++
		}
	}
	return count
}
