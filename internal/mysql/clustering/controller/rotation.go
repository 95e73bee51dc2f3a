// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// observeRotation reads the cluster's Secret while a rotation is requested.
func (c Controller) observeRotation(ctx context.Context, seen *observation) {
	asked := seen.cluster.Annotations[mocov1beta2.RotationAnnotation]
	if asked != mocov1beta2.RotateRequest && asked != mocov1beta2.DiscardRequest {
		return
	}
	secret, err := seen.readSecret()
	if err != nil {
		seen.passwordProblem = err.Error()
		return
	}
	seen.Rotation = clustering.PasswordRotation{
		Asked: asked == mocov1beta2.RotateRequest, DiscardAsked: asked == mocov1beta2.DiscardRequest,
		ID: secret.Annotations[mocov1beta2.RotationIDAnnotation], IsPromoted: !mysqlusers.HasNextPasswords(secret.Data),
	}
	if password, err := seen.newestPassword(mysqlusers.ReplicationUser); err == nil && seen.Rotation.ID != "" {
		seen.channelPassword = hashPassword(password)
	}
	if seen.Rotation.DiscardAsked && seen.Rotation.IsPromoted {
		seen.Rotation.KnownSince = c.passwordsKnownSince(ctx, seen.cluster, secret.Data[mysqlusers.PasswordKeyOf(mysqlusers.AgentUser)])
	}
}

// hashPassword returns the hash in the format in which a server's facts report the password of its channel.
func hashPassword(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// passwordsKnownSince returns the time of the last write to the Secret that the Pods mount, or the zero time if this
// Secret does not contain the password.
func (c Controller) passwordsKnownSince(ctx context.Context, cluster *mocov1beta2.MySQLCluster, password []byte) time.Time {
	files, err := c.readSecret(ctx, cluster, cluster.ClientSecretName())
	if err != nil || !strings.Contains(string(files.Data[mysqlusers.ClientFileOf(mysqlusers.AgentUser)]), mysqlusers.EscapePassword(password)) {
		return time.Time{}
	}
	since := files.CreationTimestamp.Time
	for _, field := range files.ManagedFields {
		if field.Time != nil && field.Time.After(since) {
			since = field.Time.Time
		}
	}
	return since
}

func (c Controller) prepareRotation(ctx context.Context, seen *observation) error {
	return c.changeSecret(ctx, seen, func(secret *corev1.Secret) {
		secret.Data = mysqlusers.AddNextPasswords(secret.Data, rand.Text)
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, mocov1beta2.RotationIDAnnotation, rand.Text())
	})
}

func (s *observation) retainPasswords(ctx context.Context, do clustering.RetainPasswords) error {
	secret, err := s.readSecret()
	if err != nil {
		return err
	}
	return s.changeAccounts(ctx, do, do.Index, mysqlusers.BuildRetainStatement(secret.Data, s.Rotation.ID))
}

func (s *observation) discardPasswords(ctx context.Context, do clustering.DiscardPasswords) error {
	return s.changeAccounts(ctx, do, do.Index, mysqlusers.BuildDiscardStatement())
}

func (s *observation) changeAccounts(ctx context.Context, do clustering.Action, i int, statements ...string) error {
	return s.runAction(ctx, i, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.ChangeAccounts(ctx, s.facts[i].SemiSync, statements)
	})
}

func (c Controller) promotePasswords(ctx context.Context, seen *observation) error {
	if err := c.changeSecret(ctx, seen, func(secret *corev1.Secret) { secret.Data = mysqlusers.PromoteNextPasswords(secret.Data) }); err != nil {
		return err
	}
	for i := range seen.conns { // Open connection pools would keep logging in with the old password.
		seen.clusterConns.forgetInstance(i)
	}
	return nil
}

func (c Controller) endRotation(ctx context.Context, seen *observation, do clustering.EndRotation) error {
	if do.Discarded {
		if err := c.changeSecret(ctx, seen, func(secret *corev1.Secret) { delete(secret.Annotations, mocov1beta2.RotationIDAnnotation) }); err != nil {
			return err
		}
	}
	return c.removeAnnotations(ctx, seen.cluster, []string{mocov1beta2.RotationAnnotation})
}

// changeSecret changes the cluster's Secret, unless it was changed after it was read.
func (c Controller) changeSecret(ctx context.Context, seen *observation, change func(*corev1.Secret)) error {
	before, err := seen.readSecret()
	if err != nil {
		return err
	}
	after := before.DeepCopy()
	change(after)
	return reconcile.PatchObserved(ctx, c.client, before, after, Name)
}
