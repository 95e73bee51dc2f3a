// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// nodes is how many a sleeper has.
const nodes = 2

// sleeper is a cluster that is put to sleep and woken, with the wire between it and the manager.
type sleeper struct {
	*world
	*testenv.TargetCluster
	tap *tap
	// hold is a file: while it exists, nodes that are switched on do not come up.
	hold string
}

// newSleeper makes a cluster. Certificates of zero live for an hour and never matter.
func (w *world) newSleeper(t *testing.T, name string, certificates time.Duration) *sleeper {
	t.Helper()
	s := &sleeper{world: w, hold: filepath.Join(t.TempDir(), "hold")}
	s.TargetCluster = testenv.CreateTargetCluster(t, w.hub, w.cloud, testenv.ClusterOptions{
		Name: name, Nodes: nodes, Certificates: certificates, Flags: []string{"--hold-file", s.hold, "--heartbeat", "1s"},
	})
	s.tap = w.wire.newTap(t, viaCluster, s.Config)
	through, err := clientcmd.Write(kubeconfig(s.tap))
	if err != nil {
		t.Fatal(err)
	}
	s.reroute(t, name+"-admin-kubeconfig", "kubeconfig", string(through))
	s.reroute(t, name+"-aws-creds", "endpoint_url", w.cloudTap.url)
	return s
}

// reroute makes a Secret lead over the wire.
func (s *sleeper) reroute(t *testing.T, name, key, value string) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[key] = []byte(value)
	if err := s.hub.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func (s *sleeper) deployment(t *testing.T) *hivev1.ClusterDeployment {
	t.Helper()
	cd := &hivev1.ClusterDeployment{}
	if err := s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, cd); err != nil {
		t.Fatal(err)
	}
	return cd
}

// ask says what is wanted, as a user does.
func (s *sleeper) ask(t *testing.T, want hivev1.PowerState) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"powerState":%q}}`, want)
	if err := s.hub.Client.Patch(t.Context(), s.deployment(t), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// touch makes the manager look at the cluster once more.
func (s *sleeper) touch(t *testing.T, value int) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"e2e/touched":"%d"}}}`, value)
	if err := s.hub.Client.Patch(t.Context(), s.deployment(t), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// reports says nil if the condition was observed for the spec as it is now and has the status and the reason.
func reports(cd *hivev1.ClusterDeployment, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(cd.Status.Conditions, kind)
	switch {
	case c == nil:
		return fmt.Errorf("expected a condition %s, found none", kind)
	case c.ObservedGeneration != cd.Generation:
		return fmt.Errorf("expected %s of generation %d, found %d", kind, cd.Generation, c.ObservedGeneration)
	case c.Status != status || c.Reason != reason:
		return fmt.Errorf("expected %s to be %s (%s), found %s (%s): %s", kind, status, reason, c.Status, c.Reason, c.Message)
	}
	return nil
}

// asleep says nil when the hub calls the cluster Hibernating and every machine is off.
func (s *sleeper) asleep(t *testing.T) error {
	t.Helper()
	if err := reports(s.deployment(t), hivev1.ClusterHibernatingCondition, metav1.ConditionTrue, hivev1.HibernatingHibernationReason); err != nil {
		return err
	}
	return s.cloud.ExpectState(t, s.InfraID, "stopped")
}

// awake says nil when the hub calls the cluster Ready, every machine is on and every node has reported since.
func (s *sleeper) awake(t *testing.T) error {
	t.Helper()
	cd := s.deployment(t)
	if err := reports(cd, hivev1.ClusterReadyCondition, metav1.ConditionTrue, hivev1.RunningHibernationReason); err != nil {
		return err
	}
	if err := s.cloud.ExpectState(t, s.InfraID, "running"); err != nil {
		return err
	}
	since := cd.CreationTimestamp.Time
	if r := cd.Status.Hibernation; r != nil {
		if r.ResumeStartedAt == nil || r.ResumedAt == nil {
			return fmt.Errorf("expected the record of a finished resume, found one that began %v and ended %v", r.ResumeStartedAt, r.ResumedAt)
		}
		since = r.ResumeStartedAt.Time
	}
	return s.nodesSeen(t.Context(), since)
}

// nodesSeen says nil when every node is ready and has given a sign of life after the time.
func (s *sleeper) nodesSeen(ctx context.Context, since time.Time) error {
	seen, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range seen {
		if !n.ready || !n.lastSeen.After(since) {
			return fmt.Errorf("expected node %s ready and seen after %s, found ready %t and seen %s", n.name, since, n.ready, n.lastSeen)
		}
	}
	return nil
}

// nodeSeen is a node as its own cluster shows it.
type nodeSeen struct {
	name     string
	ready    bool
	lastSeen time.Time
}

// nodes asks the cluster itself, not over the wire.
func (s *sleeper) nodes(ctx context.Context) ([]nodeSeen, error) {
	var list corev1.NodeList
	if err := s.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("expected nodes, found none")
	}
	var seen []nodeSeen
	for _, n := range list.Items {
		var lease coordinationv1.Lease
		if err := s.Client.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: n.Name}, &lease); err != nil {
			return nil, fmt.Errorf("read lease: %w", err)
		}
		one := nodeSeen{name: n.Name, lastSeen: lease.Spec.RenewTime.Time}
		for _, c := range n.Status.Conditions {
			one.ready = one.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		seen = append(seen, one)
	}
	return seen, nil
}

// requestsOlderThan says nil when each node's newest request for a client certificate is that old and was not approved.
func (s *sleeper) requestsOlderThan(t *testing.T, age time.Duration) error {
	t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := s.Client.List(t.Context(), &list); err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	waiting := 0
	for _, r := range list.Items {
		if len(r.Status.Conditions) == 0 && r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && time.Since(r.CreationTimestamp.Time) > age {
			waiting++
		}
	}
	if waiting != nodes {
		return fmt.Errorf("expected %d requests that have waited for %s, found %d", nodes, age, waiting)
	}
	return nil
}

// awaitExpiry waits until no node has a client certificate that is still valid. It looks at the certificates themselves: a
// machine that loses its power while it changes the link to the current one has no link.
func (s *sleeper) awaitExpiry(t *testing.T) {
	t.Helper()
	disks := filepath.Join(filepath.Dir(s.Manifest), s.InfraID+"-worker-*", "pki")
	files, err := filepath.Glob(filepath.Join(disks, "kubelet-client-[0-9]*.pem"))
	if err != nil || len(files) == 0 {
		others, _ := filepath.Glob(filepath.Join(disks, "*"))
		t.Fatalf("expected the nodes' certificates on their disks, found only %v (%v)", others, err)
	}
	for _, file := range files {
		testenv.Eventually(t, "the certificate has expired: "+filepath.Base(filepath.Dir(filepath.Dir(file))), func() error {
			expires, err := notAfter(file)
			if err == nil && time.Until(expires) >= 0 {
				err = fmt.Errorf("expected an expired certificate, found one that is valid until %s", expires)
			}
			return err
		})
	}
}

func notAfter(file string) (time.Time, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, errors.New("expected a PEM block, found none")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse certificate: %w", err)
	}
	return certificate.NotAfter, nil
}
