// SPDX-License-Identifier: Apache-2.0

package clusterjobs

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
)

const kubeconfigKey = "kubeconfig"

// ErrGateClosed ends a job whose cluster went to sleep.
var ErrGateClosed = errors.New("the cluster may not be dialled any more")

// Connector connects to clusters that may be dialled. Its fields are set before it is used.
type Connector struct {
	Dialer targetcluster.Dialer
	// ReadSecret reads a Secret of the hub.
	ReadSecret func(ctx context.Context, secret types.NamespacedName) (*corev1.Secret, error)
	// MayDial reports whether the cluster may be dialled now.
	MayDial func(ctx context.Context, cluster types.NamespacedName) bool
}

// Connect prepares the connection that a Secret in the namespace of the cluster describes. Whoever gets it closes it at the end of the job:
// it must not outlive the time that the cluster is awake.
func (c *Connector) Connect(ctx context.Context, cluster types.NamespacedName, secretName string) (*targetcluster.ClusterClient, error) {
	secret, err := c.ReadSecret(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: secretName})
	if err != nil {
		return nil, &targetcluster.KubeconfigError{Message: DescribeSecretError(secretName, err)}
	}
	connection, err := c.Dialer.Dial(secret.Data[kubeconfigKey])
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

// ReadSecretWith returns a function that reads a Secret when it is needed; none is watched or kept.
func ReadSecretWith(reader client.Reader) func(context.Context, types.NamespacedName) (*corev1.Secret, error) {
	return func(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
		var s corev1.Secret
		if err := reader.Get(ctx, key, &s); err != nil {
			return nil, fmt.Errorf("read secret %s: %w", key, err)
		}
		return &s, nil
	}
}

// DescribeSecretError never has more than the name of a Secret.
func DescribeSecretError(name string, err error) string {
	if k8serrors.IsNotFound(err) {
		return fmt.Sprintf("Expected the Secret %s on the hub, found none; create it", name)
	}
	if k8serrors.IsForbidden(err) {
		return fmt.Sprintf("The manager may not read the Secret %s of the hub; its namespace is none of those that it watches", name)
	}
	return fmt.Sprintf("The Secret %s cannot be read from the hub", name)
}
