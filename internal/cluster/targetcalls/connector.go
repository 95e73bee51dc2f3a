// SPDX-License-Identifier: Apache-2.0

package targetcalls

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
)

const kubeconfigKey = "kubeconfig"

// ErrGateClosed ends a job when its cluster may no longer be dialled.
var ErrGateClosed = errors.New("the cluster may no longer be dialled")

// Connector connects to clusters that may be dialled. Its fields are set before it is used.
type Connector struct {
	Dialer targetcluster.Dialer
	// ReadSecret reads a Secret of the hub.
	ReadSecret func(ctx context.Context, secret types.NamespacedName) (*corev1.Secret, error)
	// MayDial reports whether the cluster may be dialled now.
	MayDial func(ctx context.Context, cluster types.NamespacedName) bool
}

// Server defines how a cluster is dialled. Servers are comparable.
type Server struct {
	// KubeconfigSecret is the name of the Secret with the kubeconfig, in the namespace of the cluster; empty if it is
	// unknown.
	KubeconfigSecret string
	// Override replaces the server of the kubeconfig.
	Override hibernation.ServerOverride
}

// String returns a text that is unique to the server.
func (s Server) String() string {
	return fmt.Sprintf("%q %q %q", s.KubeconfigSecret, s.Override.URL, s.Override.Address)
}

// Connect prepares the connection to a server. The caller closes it at the end of the job, because the connection
// must not outlive the time in which the cluster runs.
func (c *Connector) Connect(ctx context.Context, cluster types.NamespacedName, server Server) (*targetcluster.ClusterClient, error) {
	secret, err := c.ReadSecret(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: server.KubeconfigSecret})
	if err != nil {
		return nil, &targetcluster.KubeconfigError{Message: DescribeSecretError(server.KubeconfigSecret, err)}
	}
	connection, err := c.Dialer.Dial(secret.Data[kubeconfigKey], server.Override)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection: %w", err)
	}
	return connection, nil
}

// Send sends a request if the cluster may be dialled now.
func (c *Connector) Send(ctx context.Context, cluster types.NamespacedName, request func() error) error {
	if !c.MayDial(ctx, cluster) {
		return ErrGateClosed
	}
	return request()
}

// ReadSecretWith returns a function that reads a Secret on demand. No Secret is watched or cached.
func ReadSecretWith(reader client.Reader) func(context.Context, types.NamespacedName) (*corev1.Secret, error) {
	return func(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
		var s corev1.Secret
		if err := reader.Get(ctx, key, &s); err != nil {
			return nil, fmt.Errorf("read secret %s: %w", key, err)
		}
		return &s, nil
	}
}

// DescribeSecretError describes why a Secret could not be read. The text contains only the name of the Secret, never
// its contents.
func DescribeSecretError(name string, err error) string {
	if k8serrors.IsNotFound(err) {
		return fmt.Sprintf("Expected the Secret %s on the hub, found none; create it", name)
	}
	if k8serrors.IsForbidden(err) {
		return fmt.Sprintf("The manager may not read the Secret %s of the hub: it does not watch the namespace, or lacks the permission", name)
	}
	return fmt.Sprintf("The Secret %s cannot be read from the hub", name)
}
