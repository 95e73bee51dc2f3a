// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// login runs a query for one row on a server, with a password and over TLS. It logs in again if the session is killed:
// the manager kills client sessions when an instance changes its role.
func (e *environment) login(ctx context.Context, t *testing.T, i int, user, password string) error {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.TLSConfig = user, password, "tcp", net.JoinHostPort(e.servers[i].Address, "3306"), "preferred"
	c.Timeout, c.Logger = sqlTimeout, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // The session only reads.
	const attempts = 10
	for range attempts {
		if err = db.PingContext(ctx); !errors.Is(err, driver.ErrInvalidConn) {
			return err
		}
	}
	return err
}

// beginRotation clears an earlier rotation, requests another one, and returns the passwords that become the old ones.
func (e *environment) beginRotation(t *testing.T) map[string][]byte {
	t.Helper()
	secret := e.getSecret(t)
	delete(secret.Annotations, mocov1beta2.RotationIDAnnotation)
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), secret))
	e.annotate(t, map[string]string{mocov1beta2.RotationAnnotation: mocov1beta2.RotateRequest})
	return secret.Data
}

// checkRotated checks that every account can log in to every instance, with its previous password and with its password
// in the Secret.
func (e *environment) checkRotated(t *testing.T, before map[string][]byte) error {
	t.Helper()
	secret := e.getSecret(t)
	if asked := e.getCluster(t).Annotations[mocov1beta2.RotationAnnotation]; asked != "" {
		return fmt.Errorf("the request to %s is still there", asked)
	}
	if len(secret.Data) != len(before) {
		return fmt.Errorf("expected the previous keys in the Secret, found %d", len(secret.Data))
	}
	var errs []error
	for _, a := range mysqlusers.ListAccounts() {
		if string(secret.Data[a.PasswordKey]) == string(before[a.PasswordKey]) {
			errs = append(errs, fmt.Errorf("%s has no new password", a.Name))
		}
		for i := range e.servers {
			errs = append(errs, e.login(t.Context(), t, i, a.Name, string(before[a.PasswordKey])), e.login(t.Context(), t, i, a.Name, string(secret.Data[a.PasswordKey])))
		}
	}
	return errors.Join(errs...)
}

// TestRotation gives all accounts new passwords and then discards the old ones, while clients keep logging in.
func TestRotation(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, nil)
	stop := e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	before := e.getSecret(t).Data

	ctx, end := context.WithCancel(t.Context())
	var logins sync.WaitGroup
	attempts := 0
	logins.Go(func() { // Log in with the password in the Secret, and with the password from before the rotation.
		for i := 0; ctx.Err() == nil; i = (i + 1) % instances {
			for _, password := range [][]byte{e.getSecret(t).Data["WRITABLE_PASSWORD"], before["WRITABLE_PASSWORD"]} {
				if err := e.login(ctx, t, i, mysqlusers.WritableUser, string(password)); err != nil && ctx.Err() == nil {
					t.Errorf("instance %d: %v", i, err)
				}
				attempts++
			}
		}
	})
	defer logins.Wait()
	defer end()
	if ran := e.runPlugin(t, "rotate", clusterName, "--wait"); ran.code != exit.Done || !strings.Contains(ran.out, "rotated the passwords") {
		t.Fatalf("expected a rotation, found %+v", ran)
	}
	testenv.ExpectNoError(t, e.checkRotated(t, before))
	if ran := e.runPlugin(t, "rotate", clusterName); ran.code != exit.Refused {
		t.Errorf("expected no second rotation before the old passwords end, found %+v", ran)
	}
	end()
	logins.Wait()
	t.Logf("%d logins during the rotation", attempts)

	t.Log("The old passwords end when no file has them any more, and replication continues.")
	after := e.getSecret(t)
	e.ExpectCreated(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.name.Namespace, Name: "moco-my-cnf-" + clusterName},
		StringData: map[string]string{mysqlusers.ClientFileOf(mysqlusers.AgentUser): "[client]\npassword=\"" + string(after.Data["AGENT_PASSWORD"]) + "\"\n"},
	})
	stop()
	e.clock.ahead = 10 * time.Minute // After ten minutes the kubelet has updated the files.
	e.startManager(t)
	if ran := e.runPlugin(t, "rotate", clusterName, "--discard", "--wait"); ran.code != exit.Done {
		t.Fatalf("expected the end of the old passwords, found %+v", ran)
	}
	for _, a := range mysqlusers.ListAccounts() {
		for i := range instances {
			testenv.ExpectNoError(t, e.login(t.Context(), t, i, a.Name, string(after.Data[a.PasswordKey])))
			if err := e.login(t.Context(), t, i, a.Name, string(before[a.PasswordKey])); err == nil || !strings.Contains(err.Error(), "1045") {
				t.Errorf("%s on instance %d: expected the old password to have ended, found %v", a.Name, i, err)
			}
		}
	}
	primary := e.getCluster(t).Status.CurrentPrimaryIndex
	for i := range instances {
		if i != primary {
			e.mustRun(t, i, "root", "stop replica io_thread", "start replica io_thread")
		}
	}
	e.waitForAnswerBut(t, primary, "select service_state from performance_schema.replication_connection_status where channel_name = ''", "ON")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	if found := e.getSecret(t); found.Annotations[mocov1beta2.RotationIDAnnotation] != "" || len(found.Data) != len(before) {
		t.Errorf("expected the usual keys in the Secret, found %d keys and %v", len(found.Data), found.Annotations)
	}
}
