// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

// wiretap searches the network traffic for passwords.
type wiretap struct {
	mu    sync.Mutex
	bytes int
	heard map[string]bool
}

func (w *wiretap) Write(passing []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += len(passing)
	for _, password := range mysqld.ProductPasswords() {
		if bytes.Contains(passing, password) {
			w.heard[string(password)] = true
		}
	}
	return len(passing), nil
}

const (
	// sessionsInPlainText counts Torpor's sessions over the network without TLS. The tests' own probe uses a session of
	// the agent account.
	sessionsInPlainText = `select count(*) from performance_schema.threads
		where processlist_user like 'moco-%' and processlist_user <> 'moco-agent' and connection_type <> 'SSL/TLS'`
	accountsWithTLS = "select group_concat(user order by user) from mysql.user where ssl_type = 'ANY'"
	verifiedChannel = `select ssl_allowed = 'YES' and ssl_verify_server_certificate = 'YES' and ssl_ca_file = @@ssl_ca
		from performance_schema.replication_connection_configuration where channel_name = ''`

	unverifiedChannel = `select ssl_allowed = 'YES' and ssl_verify_server_certificate = 'NO' and ssl_ca_file = ''
		from performance_schema.replication_connection_configuration where channel_name = ''`

	isFresh = `select str_to_date(left(variable_value, 20), '%b %e %H:%i:%s %Y') > now() + interval 60 day
		from performance_schema.global_status where variable_name = 'Ssl_server_not_after'`
)

// TestEverySessionIsEncrypted takes a cluster from Pods without certificates to Pods with certificates, and through a
// renewal.
func TestEverySessionIsEncrypted(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	tap := &wiretap{heard: map[string]bool{}}
	pods := mysqlpods.StartCluster(t, e.Environment, instances, mysqlpods.ClusterOptions{IsLinked: true})
	pods.Network.TapInto(tap)
	pods.WithoutCertificates = true
	for i := range instances {
		testenv.ExpectNoError(t, pods.ReplacePod(t.Context(), i))
	}
	e.usePods(pods)
	e.createCluster(t, nil)
	stop := e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, accountsWithTLS, "")

	t.Log("Pods get certificates one by one; no server restarts.")
	pods.WithoutCertificates = false
	for i := range instances {
		testenv.ExpectNoError(t, pods.ReplacePod(t.Context(), i))
		e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	}
	e.waitForAnswer(t, accountsWithTLS, "moco-admin,moco-backup,moco-clone-donor,moco-repl")
	e.waitForAnswerBut(t, e.getCluster(t).Status.CurrentPrimaryIndex, verifiedChannel, "1")
	e.waitForAnswer(t, sessionsInPlainText, "0")
	if up := e.query(t, 0, "select count(*) from performance_schema.threads where processlist_user in ('moco-admin', 'moco-repl')"); up == "0" {
		t.Error("expected sessions, found none")
	}
	for _, user := range []string{mysqlusers.AdminUser, mysqlusers.ReplicationUser} {
		if err := pingWithoutTLS(t, e.servers[0].Address, user); err == nil || !strings.Contains(err.Error(), "1045") {
			t.Errorf("%s without TLS: expected error 1045, found %v", user, err)
		}
	}

	t.Log("Pods change to another Secret one by one: until then channels are encrypted, and verified only between Pods of the same Secret.")
	e.ExpectCreated(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.name.Namespace, Name: "other"}, Data: pods.Installation.Certificates})
	pods.TLSSecret = "other"
	primary := e.getCluster(t).Status.CurrentPrimaryIndex
	for i := range instances {
		if i == primary {
			continue
		}
		testenv.ExpectNoError(t, pods.ReplacePod(t.Context(), i))
		testenv.Eventually(t, "the channel is encrypted and not verified", func() error {
			found, err := e.tryQuery(t, i, unverifiedChannel)
			return errors.Join(err, testenv.ErrorIf(found != "1", "found %s", found))
		})
		e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	}
	testenv.ExpectNoError(t, pods.ReplacePod(t.Context(), primary))
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswerBut(t, e.getCluster(t).Status.CurrentPrimaryIndex, verifiedChannel, "1")
	e.waitForAnswer(t, sessionsInPlainText, "0")

	t.Log("A renewed certificate is presented without a restart.")
	stop()
	now := clock.RealClock{}.Now()
	pods.Installation.RewriteCertificates(t, now.Add(-70*24*time.Hour))
	for i := range instances {
		e.mustRun(t, i, "root", "alter instance reload tls")
	}
	pods.Installation.RewriteCertificates(t, now)
	e.startManager(t)
	e.waitForAnswer(t, isFresh, "1")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")

	tap.mu.Lock()
	defer tap.mu.Unlock()
	if len(tap.heard) > 0 || tap.bytes == 0 {
		t.Errorf("expected no password among %d bytes, found %v", tap.bytes, tap.heard)
	}
}

// TestServersThatRequireTLS covers servers that refuse sessions without TLS: the creation of a cluster, a failover and
// a CLONE.
func TestServersThatRequireTLS(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t, func(o *mysqlpods.ClusterOptions) { o.Settings = []string{"require_secure_transport=ON"} })
	if err := pingWithoutTLS(t, e.servers[0].Address, mysqlusers.AgentUser); err == nil || !strings.Contains(err.Error(), "3159") {
		t.Errorf("expected error 3159 without TLS, found %v", err)
	}
	e.servers[0].KillAtOnce(t)
	heir, value := e.waitForAcknowledgedWrite(t)
	e.servers[0].WipeData(t)
	e.servers[0].StartAndWait(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,"+value)
	e.waitForAnswerBut(t, heir, verifiedChannel, "1")
}

func pingWithoutTLS(t *testing.T, address, user string) error {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.Logger = user, string(mysqld.ProductPasswords()[mysqlusers.PasswordKeyOf(user)]), "tcp", address+":3306", &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // The session only reads.
	return db.PingContext(t.Context())
}
