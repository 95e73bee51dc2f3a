// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// replicas of the primary are the instances 1 and 2, as long as nothing happened to the first.
func replicas() []int { return []int{1, 2} }

func (p *play) write() error {
	p.story.Step("Write to the primary, read from the replicas")
	out, err := p.sql(0, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO app.t VALUES (1, 'replicated')",
		"SELECT @@version")
	if err != nil {
		return err
	}
	p.story.Saw("kubectl moco mysql -u moco-admin %s -- -e \"… INSERT INTO app.t VALUES (1, 'replicated')\" (MySQL %s)", clusterName, out)
	for _, i := range replicas() {
		err := p.story.Poll(p.ctx, "the row", commandLimit, func(context.Context) error {
			v, err := p.sql(i, "SELECT v FROM app.t WHERE id = 1")
			if err == nil && v != "replicated" {
				err = fmt.Errorf("expected the row in instance %d, found %q", i, v)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	p.story.Saw("the row is in both replicas")
	return nil
}

func (p *play) stopClustering() error {
	p.story.Step("A DBA stops clustering")
	if err := p.show("stop", "clustering", clusterName, "--reason", "compare replicas", "--until", "40m", "--wait"); err != nil {
		return err
	}
	if err := p.table(); err != nil {
		return err
	}
	return p.show("status")
}

// advance applies a transaction by hand on the replicas, which is what the stop is for.
func (p *play) advance() error {
	p.story.Step("The DBA stops the replicas' SQL threads and advances their GTIDs by hand")
	for _, i := range replicas() {
		if _, err := p.sql(i, "STOP REPLICA SQL_THREAD"); err != nil {
			return err
		}
	}
	p.story.Saw("STOP REPLICA SQL_THREAD on instances 1 and 2")
	executed, err := p.sql(0, "INSERT INTO app.t VALUES (2, 'by hand')", "SELECT @@gtid_executed")
	if err != nil {
		return err
	}
	server, _, _ := strings.Cut(executed, ":")
	number := server + ":" + executed[strings.LastIndexAny(executed, ":-")+1:]
	p.story.Saw("the primary commits %s", number)
	for _, i := range replicas() {
		if _, err := p.sql(i, "SET GLOBAL super_read_only = OFF", "SET GTID_NEXT = '"+number+"'", "INSERT INTO app.t VALUES (2, 'by hand')",
			"SET GTID_NEXT = 'AUTOMATIC'", "SET GLOBAL super_read_only = ON"); err != nil {
			return err
		}
	}
	p.story.Saw("SET GTID_NEXT and the same row, on instances 1 and 2")
	err = p.stays(func() error {
		for _, i := range replicas() {
			got, err := p.sql(i, "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status", "SELECT @@gtid_executed")
			if err != nil {
				return err
			}
			if want := "OFF\n" + executed; got != want {
				return fmt.Errorf("instance %d: expected its SQL thread off and the GTIDs %s, found %q", i, executed, got)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.story.Saw("nobody has interfered: the SQL threads are stopped as they were")
	return nil
}

func (p *play) startClustering() error {
	p.story.Step("The DBA hands the cluster back")
	if err := p.show("start", "clustering", clusterName, "--wait"); err != nil {
		return err
	}
	if err := p.healthy(); err != nil {
		return err
	}
	if err := p.table(); err != nil {
		return err
	}
	return p.equal()
}

// equal compares the rows of all instances.
func (p *play) equal() error {
	var sum string
	err := p.story.Poll(p.ctx, "equal rows", commandLimit, func(context.Context) error {
		var sums []string
		for i := range len(replicas()) + 1 {
			out, err := p.sql(i, "CHECKSUM TABLE app.t")
			if err != nil {
				return err
			}
			sums = append(sums, out)
		}
		sum = sums[0]
		if len(slices.Compact(sums)) != 1 {
			return fmt.Errorf("expected equal checksums, found %q", sums)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.story.Saw("CHECKSUM TABLE is the same on all instances: %s", strings.ReplaceAll(sum, "\t", " "))
	return nil
}

func (p *play) reconciliation() error {
	p.story.Step("While reconciliation is stopped, a change of the spec waits")
	if err := p.show("stop", "reconciliation", clusterName, "--wait"); err != nil {
		return err
	}
	if _, err := p.kubectl("patch", "mysqlcluster", clusterName, "--type=merge", "-p",
		`{"spec":{"primaryServiceTemplate":{"metadata":{"labels":{"team":"data"}}}}}`); err != nil {
		return err
	}
	p.story.Saw("kubectl patch mysqlcluster %s: the Service of the primary shall have the label team=data", clusterName)
	label := func(want string) error {
		got, err := p.kubectl("get", "service", "moco-"+clusterName+"-primary", "-o", "jsonpath={.metadata.labels.team}")
		if err == nil && got != want {
			err = fmt.Errorf("expected the label team=%s, found %q", want, got)
		}
		return err
	}
	if err := p.stays(func() error { return label("") }); err != nil {
		return err
	}
	p.story.Saw("the Service is as it was")
	if err := p.table(); err != nil {
		return err
	}
	if err := p.show("start", "reconciliation", clusterName, "--wait"); err != nil {
		return err
	}
	if err := p.story.Poll(p.ctx, "the label", commandLimit, func(context.Context) error { return label("data") }); err != nil {
		return err
	}
	p.story.Saw("the Service has the label")
	return nil
}

// failover kills the primary's server and measures how long nobody could write.
func (p *play) failover() error {
	p.story.Step("kill -9 of the primary's server")
	old, err := p.primary()
	if err != nil {
		return err
	}
	pod := fmt.Sprintf("moco-%s-%d", clusterName, old)
	if _, err := p.kubectl("exec", pod, "-c", "mysqld", "--", "sh", "-c", "kill -9 $(cat /run/mysqld.pid)"); err != nil {
		return err
	}
	killed := time.Now()
	p.story.Saw("killed in %s", pod)
	var now int
	err = p.story.Poll(p.ctx, "another primary", commandLimit, func(context.Context) error {
		now, err = p.primary()
		if err == nil && now == old {
			err = errors.New("expected another primary")
		}
		if err == nil {
			_, err = p.sql(now, "REPLACE INTO app.t VALUES (3, 'after')")
		}
		return err
	})
	if err != nil {
		return err
	}
	p.story.Saw("instance %d takes writes, %.1f s after the kill", now, time.Since(killed).Seconds())
	if err := p.healthy(); err != nil {
		return err
	}
	p.story.Saw("the old primary is back as a replica, and the cluster is healthy")
	if err := p.table(); err != nil {
		return err
	}
	return p.equal()
}
