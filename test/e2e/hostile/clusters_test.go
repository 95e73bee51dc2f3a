// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// maxMemory is the maximum peak memory of a program.
	maxMemory     = 256 << 20
	honestCluster = "honest"
	leaseInterval = 500 * time.Millisecond
)

// hostileCluster is a cluster or a cloud endpoint of a malicious user, with the expected messages to its owner.
type hostileCluster struct {
	// api replaces the cluster's API server; nil means an honest one.
	api http.HandlerFunc
	// edit changes the kubeconfig.
	edit func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
	// endpoint replaces the endpoint of the cloud.
	endpoint string
	// hibernates is true if the hostile cluster can hibernate.
	hibernates bool
	// says is a part of the message of Ready while the cluster should run or resumes, resumeSays only while it resumes.
	says, resumeSays string
	// check is called at the end to verify what the hostile server has observed.
	check func(*testing.T)
}

const (
	// maxHonestRounds is the maximum number of rounds in which an honest cluster hibernates and resumes alone, and
	// again together with hostile clusters.
	maxHonestRounds = 12
	// maxSlowdown is the maximum factor by which hostile clusters may slow the honest cluster down.
	maxSlowdown = 1.2
)

// TestHostileClustersDoNotAffectOthers hibernates and resumes hostile clusters and an honest one at the same time.
func TestHostileClustersDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	h := newClusterHub(t)
	h.createCluster(t, honestCluster, h.adminKubeconfig(t), h.cloud.CredentialsData())
	rows := h.hostileClusters(t)
	for name, row := range rows {
		h.createHostile(t, name, row)
	}
	h.cycleHonest(t) // The first cycle opens connections that the others reuse.
	// The hostile clusters are polled most often during a transition, and not at all while they are paused.
	h.setPowerStates(t, rows, hivev1.PowerStateHibernating)
	beside := []time.Duration{h.cycleHonest(t), h.cycleHonest(t)}
	for name, row := range rows {
		if row.hibernates {
			testenv.Eventually(t, name+" hibernates", func() error { return h.cloud.ExpectState(t, name, "stopped") })
		}
	}
	h.setPowerStates(t, rows, hivev1.PowerStateRunning)
	beside = append(beside, h.cycleHonest(t))
	for name, row := range rows {
		testenv.Eventually(t, name+" reports the error of its resume", func() error {
			return h.expectMessage(t, name, cmp.Or(row.resumeSays, row.says))
		})
	}
	h.setPaused(t, rows, true)
	alone := []time.Duration{h.cycleHonest(t), h.cycleHonest(t), h.cycleHonest(t)}
	// On a busy machine a single round may take long, so there are more rounds before the test fails because of the
	// median.
	for len(alone) < maxHonestRounds && slowdown(alone, beside) > maxSlowdown {
		h.setPaused(t, rows, false)
		beside = append(beside, h.cycleHonest(t))
		h.setPaused(t, rows, true)
		alone = append(alone, h.cycleHonest(t))
	}
	t.Logf("an honest cluster hibernated and resumed in %s alone and in %s together with %d hostile ones: %.2f times the median", alone, beside, len(rows), slowdown(alone, beside))
	if found := slowdown(alone, beside); found > maxSlowdown {
		t.Errorf("an honest cluster took %.2f times as long next to hostile ones, want at most %.1f", found, maxSlowdown)
	}
	for name, row := range rows {
		if row.check != nil {
			t.Run(name, row.check)
		}
	}
	peak := readPeakMemory(t, h.manager.PID())
	t.Logf("the manager used at most %d MiB", peak>>20)
	if peak > maxMemory {
		t.Errorf("the manager took %d MiB, want at most %d", peak>>20, maxMemory>>20)
	}
}

// slowdown returns the ratio of the medians.
func slowdown(alone, beside []time.Duration) float64 {
	return float64(median(beside)) / float64(median(alone))
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[(len(times)-1)/2]
}

func (h *clusterHub) hostileClusters(t *testing.T) map[string]hostileCluster {
	t.Helper()
	const tooLarge, tooMany = "the server's response is larger than allowed", "more pages or items than allowed"
	bomb := compressBlanks(t, 100<<20)
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("expected no request to another host, found %s %s with %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(stranger.Close)
	cloud := func(answer http.HandlerFunc) string {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return server.URL
	}
	return map[string]hostileCluster{
		"approvals-without-effect": h.forgetApprovals(t),
		"gzip-bomb": {api: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		}, hibernates: true, says: tooLarge},
		"endless-body": {api: func(w http.ResponseWriter, _ *http.Request) { writeUntilRefused(w, "ok") }, hibernates: true, says: tooLarge},
		"endless-pages": {api: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				_, _ = io.WriteString(w, `{"metadata":{"continue":"more"},"items":[]}`)
			}
		}, hibernates: true, resumeSays: tooMany},
		"a-million-requests": {api: func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"):
				_, _ = io.WriteString(w, `{"items":[{}`)
				writeUntilRefused(w, `,{"metadata":{"name":"a","uid":"b"},"spec":{"signerName":"kubernetes.io/kubelet-serving"}}`)
			case strings.HasSuffix(r.URL.Path, "/nodes"):
				_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"n","uid":"u"}}]}`)
			case r.URL.Path != "/readyz":
				_, _ = io.WriteString(w, `{"items":[]}`)
			}
		}, hibernates: true, resumeSays: tooMany},
		"slow-loris": {api: func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-r.Context().Done():
					return
				case <-tick.C:
				}
				_, _ = io.WriteString(w, "o")
				_ = http.NewResponseController(w).Flush()
			}
		}, hibernates: true, says: "no answer in time"},
		"redirect": {api: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		}, hibernates: true, says: "a redirect (302), which is not followed"},
		"metadata-service": {edit: func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://169.254.169.254"
		}, hibernates: true, says: "link-local"},
		"unverified": {edit: func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}, hibernates: true, says: "--allow-insecure-target-clusters"},
		"impersonation": {edit: func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Impersonate = "system:admin"
		}, hibernates: true, says: "--allow-insecure-target-clusters"},
		"cloud-endless-pages": {endpoint: cloud(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<DescribeInstancesResponse><nextToken>more</nextToken></DescribeInstancesResponse>`)
		}), says: "more pages or machines than allowed"},
		"cloud-endless-body": {endpoint: cloud(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<DescribeInstancesResponse><nextToken>`)
			writeUntilRefused(w, "A")
		}), says: "the response is larger than allowed"},
		"cloud-redirect": {endpoint: cloud(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
		}), says: "the API responds with a redirect, which Torpor does not follow"},
		"cloud-metadata": {endpoint: "http://169.254.169.254", says: "link-local"},
		"cloud-words": {endpoint: cloud(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<Response><Errors><Error><Code>Secret</Code><Message>of the network</Message></Error></Errors></Response>`)
		}), says: "the message of this endpoint is hidden"},
	}
}

// clusterHub is a hub with its manager, and the cloud of honest users.
type clusterHub struct {
	*testenv.Environment
	cloud   *testenv.CloudServer
	manager *testenv.Process
}

func newClusterHub(t *testing.T) *clusterHub {
	t.Helper()
	binary := testenv.TorporPath(t)
	h := &clusterHub{Environment: testenv.StartAPIServer(t), cloud: testenv.StartCloud(t)}
	h.InstallCRDs(t)
	// The hub is also the API server of the honest clusters; its node always has a current heartbeat.
	h.mustCreate(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}})
	testenv.Eventually(t, "a lease", func() error {
		return client.IgnoreAlreadyExists(h.Client.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n"},
		}))
	})
	testenv.RunInBackground(t, "the node's lease", func(ctx context.Context) error {
		tick := time.NewTicker(leaseInterval)
		defer tick.Stop()
		for {
			renewal := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n"}}
			if err := h.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, []byte(renewal))); err != nil && ctx.Err() == nil {
				t.Errorf("renew lease: %v", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	h.manager = testenv.StartProcess(t, binary, []string{
		"manager", "--kubeconfig", h.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0",
	}, nil)
	return h
}

func (h *clusterHub) mustCreate(t *testing.T, obj client.Object) {
	t.Helper()
	if err := h.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func (h *clusterHub) adminKubeconfig(t *testing.T) *clientcmdapi.Config {
	t.Helper()
	c, err := clientcmd.LoadFromFile(h.KubeconfigPath(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (h *clusterHub) createHostile(t *testing.T, name string, row hostileCluster) {
	t.Helper()
	c, keys := h.adminKubeconfig(t), h.cloud.CredentialsData()
	cluster, user := c.Clusters[c.Contexts[c.CurrentContext].Cluster], c.AuthInfos[c.Contexts[c.CurrentContext].AuthInfo]
	if row.api != nil {
		server := httptest.NewUnstartedServer(row.api)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		cluster.Server = server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	if row.edit != nil {
		row.edit(cluster, user)
	}
	if row.endpoint != "" {
		keys = maps.Clone(keys)
		keys["endpoint_url"] = []byte(row.endpoint)
	}
	h.createCluster(t, name, c, keys)
}

// createCluster starts two machines, and creates their ClusterDeployment in a namespace of the same name.
func (h *clusterHub) createCluster(t *testing.T, name string, kubeconfig *clientcmdapi.Config, keys map[string][]byte) {
	t.Helper()
	h.cloud.RunInstances(t, name, 2)
	h.mustCreate(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	text, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	h.mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cloud"}, Data: keys})
	h.mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "admin"}, Data: map[string][]byte{"kubeconfig": text}})
	h.mustCreate(t, testenv.BuildClusterDeployment(client.ObjectKey{Namespace: name, Name: name}, "cloud", "admin"))
}

func (h *clusterHub) getCluster(t *testing.T, name string) *hivev1.ClusterDeployment {
	t.Helper()
	var cd hivev1.ClusterDeployment
	if err := h.Client.Get(t.Context(), client.ObjectKey{Namespace: name, Name: name}, &cd); err != nil {
		t.Fatal(err)
	}
	return &cd
}

// setPaused pauses or unpauses the clusters.
func (h *clusterHub) setPaused(t *testing.T, rows map[string]hostileCluster, isPaused bool) {
	t.Helper()
	for name := range rows {
		h.ExpectAnnotated(t, h.getCluster(t, name), map[string]string{hivev1.PowerStatePauseAnnotation: strconv.FormatBool(isPaused)})
	}
	for name := range rows {
		if isPaused {
			testenv.Eventually(t, name+" is paused", func() error { return h.expectMessage(t, name, "An annotation pauses") })
		}
	}
}

// cycleHonest hibernates and resumes the honest cluster, and returns how long that took.
func (h *clusterHub) cycleHonest(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	for _, state := range []hivev1.PowerState{hivev1.PowerStateHibernating, hivev1.PowerStateRunning} {
		h.setPowerState(t, honestCluster, state)
		testenv.Eventually(t, "the honest cluster is "+string(state), func() error {
			if found := h.getCluster(t, honestCluster).Status.PowerState; found != string(state) {
				return fmt.Errorf("found %q", found)
			}
			return nil
		})
	}
	return time.Since(began)
}

func (h *clusterHub) setPowerStates(t *testing.T, rows map[string]hostileCluster, state hivev1.PowerState) {
	t.Helper()
	for name := range rows {
		h.setPowerState(t, name, state)
	}
}

func (h *clusterHub) setPowerState(t *testing.T, name string, state hivev1.PowerState) {
	t.Helper()
	testenv.ExpectPatched(t, h.Environment, h.getCluster(t, name), func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = state })
}

// expectMessage returns an error until the message of the cluster's Ready condition contains a text.
func (h *clusterHub) expectMessage(t *testing.T, name, says string) error {
	t.Helper()
	conditions := h.getCluster(t, name).Status.Conditions
	ready := meta.FindStatusCondition(conditions, hivev1.ClusterReadyCondition)
	if ready == nil {
		return errors.New("no condition yet")
	}
	if !strings.Contains(ready.Message, says) {
		return fmt.Errorf("expected a message with %q, found %q", says, ready.Message)
	}
	return nil
}

func compressBlanks(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	_, err := io.WriteString(g, strings.Repeat(" ", n))
	if err := errors.Join(err, g.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// writeUntilRefused writes a text repeatedly until an error, at most a gigabyte.
func writeUntilRefused(w io.Writer, text string) {
	text = strings.Repeat(text, 1+(64<<10)/len(text))
	for sent := 0; sent < 1<<30; sent += len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// readPeakMemory returns the peak memory of a process in bytes.
func readPeakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kilobytes := 0
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	t.Fatal("expected VmHWM in the status of the process, found none")
	return 0
}
