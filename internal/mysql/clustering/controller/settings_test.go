// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

// oddSettings contains server settings that change the behavior of sessions.
func oddSettings(o *mysqlpods.ClusterOptions) {
	o.Settings = []string{
		"autocommit=0", "sql_mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES", "character_set_server=latin1",
		"collation_server=latin1_german1_ci", `init_connect="SET NAMES utf8mb4"`, "sql_require_primary_key=ON",
		"sql_generate_invisible_primary_key=ON", "max_allowed_packet=1M", "default_password_lifetime=90",
		"completion_type=RELEASE", "max_join_size=1", "max_execution_time=1", "group_concat_max_len=4",
		"default_time_zone=-05:00", "require_secure_transport=ON", "lc_messages=fr_FR", "transaction_isolation=SERIALIZABLE",
	}
}

// TestUserSettingsDoNotBlockTheCluster creates a cluster with odd settings, and covers a failover and a CLONE.
func TestUserSettingsDoNotBlockTheCluster(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t, oddSettings)
	e.servers[0].KillAtOnce(t)
	heir, value := e.waitForAcknowledgedWrite(t)
	e.servers[0].WipeData(t)
	e.servers[0].StartAndWait(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,"+value)
	// The donor keeps the settings that a CLONE needs, and the recipient has its own settings back.
	testenv.ExpectEqual(t, "max_allowed_packet of the donor", "2097152", e.query(t, heir, "select @@global.max_allowed_packet"))
	testenv.ExpectEqual(t, "max_allowed_packet of the copy", "1048576", e.query(t, 0, "select @@global.max_allowed_packet"))
}

const expiredAccounts = "select count(*) from mysql.user where user like 'moco-%' and (password_expired = 'Y' or password_lifetime is null)"

// TestExpiredAccountsAreNamedAndRenewed expires the passwords of all accounts, first while the manager has open
// sessions and then while it has none.
func TestExpiredAccountsAreNamedAndRenewed(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	expire := "alter user '" + strings.Join(mysqlusers.Names(), "'@'%', '") + "'@'%' password expire"
	e.mustRun(t, 0, "root", expire)
	e.waitForAnswer(t, expiredAccounts, "0")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.mustRun(t, 0, "root", strings.Replace(expire, "expire", "expire default", 1))
	e.waitForAnswer(t, expiredAccounts, "0")

	t.Log("A manager without sessions reports the account, and a restart of each server renews it.")
	e.stopManager()
	e.mustRun(t, 0, "root", expire)
	e.waitForAnswer(t, expiredAccounts, "8")
	executed := e.query(t, 0, "select @@gtid_executed")
	e.waitForAnswer(t, "select @@gtid_executed", executed)
	e.startManager(t)
	testenv.Eventually(t, "the conditions report the account", func() error {
		is := meta.FindStatusCondition(e.getCluster(t).Status.Conditions, mocov1beta2.HealthyCondition)
		for i := range instances {
			if words := fmt.Sprintf("instance %d refuses moco-admin, whose password has expired", i); !strings.Contains(is.Message, words) {
				return fmt.Errorf("expected %q, found %s: %s", words, is.Status, is.Message)
			}
		}
		return nil
	})
	for _, i := range []int{2, 1, 0} {
		e.servers[i].Stop(t)
		e.servers[i].StartAndWait(t)
	}
	cluster := e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, expiredAccounts, "0")
	e.waitForAnswer(t, "select @@gtid_executed", executed)
	if errant := cluster.Status.ErrantReplicaList; len(errant) > 0 {
		t.Errorf("expected no errant replica, found %v", errant)
	}
	e.mustRun(t, cluster.Status.CurrentPrimaryIndex, "app", "insert into app.t (v) values ('after')")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,after")
}
