// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// oneCluster is an API server with a cluster of three instances without a status, and with its Secret. After a write it does not answer any more.
type oneCluster struct {
	client.Client
	isWritten bool
}

// Get implements client.Reader.
func (o *oneCluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if o.isWritten {
		return fmt.Errorf("net/http: request canceled: %w", context.DeadlineExceeded) // As the timeout of one request is told.
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

// TestARequestWithoutAnAnswerIsNoTimeoutOfTheWait has the API server hang long before the wait is over.
func TestARequestWithoutAnAnswerIsNoTimeoutOfTheWait(t *testing.T) {
	t.Parallel()
	got := runWith(t, &kubeClient{Client: &oneCluster{}, namespace: "prod"}, "rotate", "test", "--wait", "--timeout", "10m")
	if got.code != exit.Failed || !strings.Contains(got.err, "request canceled") || strings.Contains(got.err, "within 10m") {
		t.Errorf("expected exit code %d and the error of the request, found %d: %s", exit.Failed, got.code, got.err)
	}
}

func TestATimeoutNeedsAWait(t *testing.T) {
	t.Parallel()
	api := &oneCluster{}
	if got := runWith(t, &kubeClient{Client: api, namespace: "prod"}, "rotate", "test", "--timeout", "10m"); got.code != exit.Usage || api.isWritten {
		t.Errorf("expected exit code %d and no write, found %d: %s", exit.Usage, got.code, got.err)
	}
}

// TestNoInstanceIsTakenForThePrimary has a cluster of which none is chosen yet, whose index is 0 from the beginning.
func TestNoInstanceIsTakenForThePrimary(t *testing.T) {
	t.Parallel()
	got := runWith(t, &kubeClient{Client: &oneCluster{}, namespace: "prod"}, "mysql", "-u", "moco-writable", "test")
	if got.code != exit.Failed || !strings.Contains(got.err, "expected a primary") {
		t.Errorf("expected exit code %d because no primary is chosen, found %d: %s", exit.Failed, got.code, got.err)
	}
}
