// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	// outside is the index of the external server, which is not an instance.
	outside          = instances
	sourceSecretName = "source"
)

// newCopyEnvironment returns three empty instances, and an external server with data. The external server's accounts
// have the names of Torpor's accounts but other passwords.
func newCopyEnvironment(t *testing.T) *environment {
	t.Helper()
	e := newEnvironmentWithServers(t, func(o *mysqlpods.ClusterOptions) { o.LaterPods, o.TakesOverCopies = 1, true })
	e.mustRun(t, outside, "root", "set global read_only = off", "create user donor@'%' identified by 'secret-o'",
		"grant backup_admin, replication slave on *.* to donor@'%'", "create database app", "create table app.t (id int auto_increment primary key, v varchar(20))",
		"insert into app.t (v) values ('first')")
	for _, user := range []string{"moco-admin", "moco-repl", "moco-clone-donor"} {
		e.mustRun(t, outside, "root", "alter user '"+user+"'@'%' identified by 'secret-x' account lock")
	}
	cluster := testenv.BuildMySQLCluster(t, e.name, instances)
	cluster.Spec.ReplicationSourceSecretName = new(sourceSecretName)
	e.ExpectCreated(t, cluster)
	return e
}

// writeSourceSecret writes the Secret that describes the external server.
func (e *environment) writeSourceSecret(t *testing.T, changes map[string]string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.name.Namespace, Name: sourceSecretName}, StringData: map[string]string{
		"HOST": e.servers[outside].Address, "PORT": fmt.Sprint(mysqld.Port), "USER": "donor", "PASSWORD": "secret-o",
	}}
	maps.Copy(secret.StringData, changes)
	err := e.Client.Create(t.Context(), secret)
	if client.IgnoreAlreadyExists(err) == nil && err != nil {
		err = e.Client.Update(t.Context(), secret)
	}
	testenv.ExpectNoError(t, err)
}

// waitForMessage waits until a condition's message contains a text.
func (e *environment) waitForMessage(t *testing.T, kind, want string) {
	t.Helper()
	testenv.Eventually(t, kind+" has the message "+want, func() error {
		c := meta.FindStatusCondition(e.getCluster(t).Status.Conditions, kind)
		return testenv.ErrorIf(c == nil || !strings.Contains(c.Message, want), "found %+v", c)
	})
}

func (e *environment) primaryIndex(t *testing.T) int {
	t.Helper()
	i, _ := e.getCluster(t).Status.Primary()
	return i
}

// expectNothingOfItsOwn fails if an instance has a transaction that the external server lacks.
func (e *environment) expectNothingOfItsOwn(t *testing.T) {
	t.Helper()
	for i := range instances {
		held := e.query(t, i, "select @@global.gtid_executed")
		if own := e.query(t, outside, "select gtid_subtract('"+held+"', @@global.gtid_executed)"); own != "" {
			t.Errorf("expected no transactions of its own in instance %d, found %s", i, own)
		}
	}
}

// TestCopyFollowsItsSourceAndBecomesItsOwn turns an empty cluster into a copy of an external server. The copy then
// loses its primary, its source, and the source's password, and finally becomes an independent cluster.
func TestCopyFollowsItsSourceAndBecomesItsOwn(t *testing.T) {
	t.Parallel()
	e := newCopyEnvironment(t)
	e.writeSourceSecret(t, map[string]string{"INIT_AFTER_CLONE_SQL": "create user later@'%' identified by 'secret-l'; grant select on app.* to later@'%';"})
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select count(*) from app.t", "1")
	e.waitForAnswerBut(t, outside, "select count(*) from mysql.user where user = 'later'", "1")
	e.mustRun(t, outside, "app", "insert into app.t (v) values ('second')")
	e.waitForAnswer(t, "select count(*) from app.t", "2")
	e.waitForAnswerBut(t, outside, "select @@global.super_read_only", "1")
	testenv.ExpectEqual(t, "the connection to the source", "SSL/TLS", e.query(t, outside, "select max(connection_type) from performance_schema.threads where processlist_user = 'donor'"))
	if !e.getCluster(t).Status.Cloned {
		t.Error("expected status.cloned, found it false")
	}

	e.changeAccountsOutside(t)
	first := e.primaryIndex(t)
	e.servers[first].KillAtOnce(t)
	testenv.Eventually(t, "another instance is the primary", func() error {
		return testenv.ErrorIf(e.primaryIndex(t) == first, "it is instance %d", first)
	})
	e.mustRun(t, outside, "app", "insert into app.t (v) values ('third')")
	e.waitForAnswerBut(t, first, "select count(*) from app.t", "3")
	e.servers[first].StartAndWait(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select count(*) from app.t", "3")

	e.servers[outside].KillAtOnce(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "False Degraded")
	e.waitForMessage(t, mocov1beta2.HealthyCondition, "does not receive from the external server")
	e.waitForCondition(t, mocov1beta2.AvailableCondition, "True Degraded")
	e.servers[outside].StartAndWait(t)
	e.mustRun(t, outside, "root", "set global read_only = off", "alter user donor@'%' identified by 'secret-p'")
	e.servers[outside].KillAtOnce(t)
	e.servers[outside].StartAndWait(t)
	e.waitForMessage(t, mocov1beta2.HealthyCondition, "with error 1045")
	e.writeSourceSecret(t, map[string]string{"PASSWORD": "secret-p"})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectNothingOfItsOwn(t)

	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	cluster.Spec.ReplicationSourceSecretName = nil
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), cluster, client.MergeFrom(before)))
	testenv.Eventually(t, "the cluster takes writes", func() error {
		return e.runStatements(t, e.primaryIndex(t), "app", "insert into app.t (id, v) values (9, 'own') on duplicate key update v = 'own'")
	})
	e.waitForAnswerBut(t, outside, "select count(*) from app.t", "4")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
}

// changeAccountsOutside changes, on the external server, the password of an account that exists in the copy too. The
// manager resets the replication account. After a change to the administrator's account, the kubelet would restart the
// servers; the test restarts them itself.
func (e *environment) changeAccountsOutside(t *testing.T) {
	t.Helper()
	primary := e.primaryIndex(t)
	replica := (primary + 1) % instances
	e.mustRun(t, outside, "root", "alter user 'moco-repl'@'%' identified by 'secret-y'", "insert into app.t (id, v) values (2, 'changed') on duplicate key update v = 'changed'")
	e.waitForAnswer(t, "select v from app.t where id = 2", "changed")
	const password = "select authentication_string from mysql.user where user = 'moco-repl'"
	changed := e.query(t, outside, password)
	testenv.ExpectEqual(t, "the password of replication before it is needed", changed, e.query(t, primary, password))
	e.mustRun(t, replica, "root", "stop replica io_thread", "start replica io_thread")
	testenv.Eventually(t, "the password of the replication account is reset", func() error {
		return testenv.ErrorIf(e.query(t, primary, password) == changed, "it is that of outside")
	})
	const receives = "select count(*) from performance_schema.replication_connection_status where service_state = 'ON'"
	e.waitForAnswerBut(t, outside, receives, "1")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")

	e.mustRun(t, outside, "root", "alter user 'moco-admin'@'%' identified by 'secret-y'", "update app.t set v = 'again' where id = 2")
	e.waitForAnswer(t, "select v from app.t where id = 2", "again")
	for i := range instances {
		e.servers[i].KillAtOnce(t)
	}
	for i := range instances {
		e.servers[i].StartAndWait(t)
	}
	e.waitForAnswerBut(t, outside, receives, "1")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
}

// TestFailedCopyReportsTheReason checks every reason, and that the copy continues once the cause is fixed.
func TestFailedCopyReportsTheReason(t *testing.T) {
	t.Parallel()
	e := newCopyEnvironment(t)
	e.startManager(t)
	e.waitForMessage(t, mocov1beta2.InitializedCondition, "expected the Secret source, found none")
	e.writeSourceSecret(t, map[string]string{"PORT": "all"})
	e.waitForMessage(t, mocov1beta2.InitializedCondition, "PORT: expected a number from 1 to 65535")
	e.writeSourceSecret(t, map[string]string{"PASSWORD": "secret-wrong"})
	e.waitForMessage(t, mocov1beta2.InitializedCondition, "could not be copied from the external server: MySQL answered with error")
	e.writeSourceSecret(t, nil)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select count(*) from app.t", "1")
}
