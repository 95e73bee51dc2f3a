// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// refusingReader returns an error for every request.
type refusingReader struct {
	client.Reader
	err error
}

func (r refusingReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.err
}

// TestAFailedActNamesTheSecret runs without a server, so the error cannot come from a broken connection.
func TestAFailedActNamesTheSecret(t *testing.T) {
	t.Parallel()
	cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: "ns", Name: clusterName}, instances)
	reading := func(answer error) func(t *testing.T) error {
		return func(t *testing.T) error {
			t.Helper()
			_, err := Controller{live: refusingReader{err: answer}}.readSecret(t.Context(), cluster, "moco-test")
			return err
		}
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, row := range map[string]struct {
		fail func(*testing.T) error
		want string
	}{
		"a deleted Secret: the error contains the Secret's name":                    {reading(k8serrors.NewNotFound(secrets, "moco-test")), "expected the Secret moco-test, found none; restore it"},
		"no permission to read the Secret: the error contains the Secret's name":    {reading(k8serrors.NewForbidden(secrets, "moco-test", errors.New("who are you"))), "the Secret moco-test cannot be read: the API server returned Forbidden"},
		"an API server that does not respond: the error contains the Secret's name": {reading(context.DeadlineExceeded), "the Secret moco-test cannot be read: no answer in time"},
		"an unreachable API server: the error contains the Secret's name":           {reading(errors.New("read tcp 10.0.0.1:41234: broken")), "the Secret moco-test cannot be read: the connection is broken"},
		"a missing key: the error contains the Secret's name": {func(*testing.T) error {
			_, err := findPassword("moco-test", map[string][]byte{"ADMIN_PASSWORD": []byte("pass-of-admin")}, "REPLICATION_PASSWORD")
			return err
		}, "the Secret moco-test: expected a password under the key REPLICATION_PASSWORD, found none; add it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := row.fail(t)
			testenv.ExpectEqual(t, "description", row.want, describeError(err))
			testenv.ExpectEqual(t, "description of what it is a part of", row.want, describeError(errors.Join(fmt.Errorf("clone: %w", err))))
		})
	}
}

// TestChannelGetsAnAcceptedPassword covers channels that are renewed during a rotation, for example because the Secret
// with the certificate of a Pod changes.
func TestChannelGetsAnAcceptedPassword(t *testing.T) {
	t.Parallel()
	current := map[string][]byte{mysqlusers.PasswordKeyOf(mysqlusers.ReplicationUser): []byte("current")}
	rotating := mysqlusers.AddNextPasswords(current, func() string { return "next" })
	for name, row := range map[string]struct {
		passwords map[string][]byte
		rotation  string
		instances []string // instances holds the rotations that the instances have executed.
		want      string
	}{
		"no rotation: the current password":                            {current, "", []string{"", ""}, "current"},
		"new passwords that no server accepts: the current password":   {rotating, "r", []string{"", ""}, "current"},
		"new passwords that only the primary accepts: the current one": {rotating, "r", []string{"r", ""}, "current"},
		"new passwords that every server accepts: the new password":    {rotating, "r", []string{"r", "r"}, "next"},
		"rotation that cannot be observed: the current password":       {rotating, "", []string{"", ""}, "current"},
		"rotation whose passwords were promoted: the current password": {current, "r", []string{"r", "r"}, "current"},
		"discarded passwords, which end the rotation: the current one": {current, "r", []string{"", ""}, "current"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := observation{readSecret: func() (*corev1.Secret, error) { return &corev1.Secret{Data: row.passwords}, nil }}
			seen.Rotation.ID = row.rotation
			for _, executed := range row.instances {
				seen.Instances = append(seen.Instances, clustering.Instance{Rotation: executed})
			}
			got, err := seen.acceptedPassword(mysqlusers.ReplicationUser)
			testenv.ExpectNoError(t, err)
			testenv.ExpectEqual(t, "password", row.want, got)
		})
	}
}
