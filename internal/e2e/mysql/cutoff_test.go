// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"errors"
	"testing"

	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

// TestPrimaryCutOffComesBack: clients hang in the old primary, since nobody acknowledges their commits. When it is back,
// they are let go without an acknowledgement, and the cluster becomes healthy, if need be with an errant replica that a
// person empties.
func TestPrimaryCutOffComesBack(t *testing.T) {
	for name, how := range map[string]mysqlpods.CutMode{"in silence": mysqlpods.DropPackets, "with resets": mysqlpods.ResetConnections} {
		t.Run(name, func(t *testing.T) {
			cluster, manager := startHealthyCluster(t, true)
			b := &faultInjector{cluster: cluster, manager: manager, counts: map[string]int{}}
			l := newLedger()
			ctx, stop := context.WithCancel(t.Context())
			written := startWriters(ctx, t, cluster, l)
			old := primaryIndex(t, cluster)
			acknowledged := func(server int) func() error {
				return func() error {
					l.mu.Lock()
					defer l.mu.Unlock()
					if n := len(l.acks); n == 0 || (l.acks[n-1].server == old) != (server == old) {
						return errors.New("not yet")
					}
					return nil
				}
			}
			testenv.Eventually(t, "the primary acknowledges", acknowledged(old))
			cluster.Network.CutOff(old, how)
			testenv.Eventually(t, "another acknowledges", acknowledged(-1))
			told := make(chan error, 1)
			go func() { told <- writeWithoutTimeout(ctx, t, cluster, old) }()
			sleep(t, writePatience) // Clients on its node try until they give up; that one does not.
			cluster.Network.HealCut(old)
			healed := b.waitUntilRecovered(t, finalRecovery)
			if err := <-told; err == nil {
				t.Error("expected that nobody acknowledges what only the old primary has, found it acknowledged")
			}
			stop()
			written()
			var found soakResult
			found.judgeRows(t, cluster, l)
			if !healed || found.LostRows > 0 || found.DualWritableMoments > 0 || !found.EqualRows {
				t.Errorf("expected a healthy cluster with equal rows and none lost, found healthy %t and %+v\n%s", healed, found, lastLines(b.manager.LastOutput(), 80))
			}
		})
	}
}

// writeWithoutTimeout writes a row on the node of an instance and waits for as long as it takes.
func writeWithoutTimeout(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster, i int) error {
	t.Helper()
	db := openSession(t, c.Servers[i].Address, mysqlpods.AppUser, mysqlpods.AppPassword)
	defer func() { _ = db.Close() }() // The server has ended it.
	_, err := db.ExecContext(ctx, "insert into app.rows_of values (-1, 'patient')")
	return err
}
