// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// oneCluster is an API server with a cluster of three instances, without a status, and its Secret. Reads fail after
// the first write.
type oneCluster struct {
	client.Client
	isWritten bool
}

// Get implements client.Reader.
func (o *oneCluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if o.isWritten {
		return fmt.Errorf("net/http: request canceled: %w", context.DeadlineExceeded) // As client-go reports the timeout of a request.
	}
	switch found := into.(type) {
	case *mocov1beta2.MySQLCluster:
		found.Namespace, found.Name, found.Spec.Replicas = key.Namespace, key.Name, 3
	case *corev1.Secret:
		found.Namespace, found.Name = key.Namespace, key.Name
	default:
		return fmt.Errorf("expected a cluster or a Secret, found %T", into)
	}
	return nil
}

// Patch implements client.Writer.
func (o *oneCluster) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	if o.isWritten {
		return errors.New("expected one write, found another")
	}
	o.isWritten = true
	return nil
}

// TestUnansweredRequestIsNotAWaitTimeout uses an API server that stops answering long before the wait ends.
func TestUnansweredRequestIsNotAWaitTimeout(t *testing.T) {
	t.Parallel()
	got := runWith(t, &kubeClient{Client: &oneCluster{}, namespace: "prod"}, "rotate", "test", "--wait", "--timeout", "10m")
	if got.code != exit.Failed || !strings.Contains(got.err, "request canceled") || strings.Contains(got.err, "within 10m") {
		t.Errorf("expected exit code %d and the error of the request, found %d: %s", exit.Failed, got.code, got.err)
	}
}

// clusterWithoutRequest is an API server that removes the annotation of a request immediately. The Secret may change at
// the same time.
type clusterWithoutRequest struct {
	oneCluster
	secret, later corev1.Secret
}

// Get implements client.Reader.
func (o *clusterWithoutRequest) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if secret, ok := into.(*corev1.Secret); ok {
		o.secret.DeepCopyInto(secret)
	}
	return o.oneCluster.Get(ctx, key, into, options...)
}

// Patch implements client.Writer.
func (o *clusterWithoutRequest) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	o.secret = o.later
	return nil
}

func TestWithdrawnRotationsAreNotReportedAsDone(t *testing.T) {
	t.Parallel()
	rotated := metav1.ObjectMeta{Annotations: map[string]string{mocov1beta2.RotationIDAnnotation: "r"}}
	next := mysqlusers.AddNextPasswords(map[string][]byte{}, func() string { return "secret" })
	for name, row := range map[string]struct {
		args          []string
		secret, later corev1.Secret
		code          exit.Code
	}{
		"a rotation without new passwords: failed":                {later: corev1.Secret{}, code: exit.Failed},
		"a rotation whose new passwords are not promoted: failed": {later: corev1.Secret{ObjectMeta: rotated, Data: next}, code: exit.Failed},
		"a rotation whose new passwords are promoted: done":       {later: corev1.Secret{ObjectMeta: rotated}, code: exit.Done},
		"a discard that leaves old passwords valid: failed":       {[]string{"--discard"}, corev1.Secret{ObjectMeta: rotated}, corev1.Secret{ObjectMeta: rotated}, exit.Failed},
		"a discard that removes the old passwords: done":          {[]string{"--discard"}, corev1.Secret{ObjectMeta: rotated}, corev1.Secret{}, exit.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &clusterWithoutRequest{secret: row.secret, later: row.later}
			got := runWith(t, &kubeClient{Client: api, namespace: "prod"}, append([]string{"rotate", "test", "--wait"}, row.args...)...)
			if got.code != row.code || (got.code == exit.Failed) != strings.Contains(got.err, "removed too early") {
				t.Errorf("expected exit code %d, found %d: %s%s", row.code, got.code, got.out, got.err)
			}
		})
	}
}

func TestTimeoutFlagRequiresWait(t *testing.T) {
	t.Parallel()
	api := &oneCluster{}
	if got := runWith(t, &kubeClient{Client: api, namespace: "prod"}, "rotate", "test", "--timeout", "10m"); got.code != exit.Usage || api.isWritten {
		t.Errorf("expected exit code %d and no write, found %d: %s", exit.Usage, got.code, got.err)
	}
}

// TestNoInstanceIsTakenForThePrimary uses a cluster without a chosen primary. Its status.currentPrimaryIndex is 0 by
// default.
func TestNoInstanceIsTakenForThePrimary(t *testing.T) {
	t.Parallel()
	got := runWith(t, &kubeClient{Client: &oneCluster{}, namespace: "prod"}, "mysql", "-u", "moco-writable", "test")
	if got.code != exit.Failed || !strings.Contains(got.err, "expected a primary") {
		t.Errorf("expected exit code %d because no primary is chosen, found %d: %s", exit.Failed, got.code, got.err)
	}
}
