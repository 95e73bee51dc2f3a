// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
)

// passwordVariable is the environment variable with the password. There is no flag for it, because every process can
// read command lines.
const passwordVariable = "TORPOR_MYSQL_PASSWORD"

func backupCommand(logs io.Writer, env func(string) string) *cobra.Command {
	o := runner.BackupOptions{Clock: clock.RealClock{}, Log: slog.New(slog.NewJSONHandler(logs, nil))}
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Dump one instance of a MySQL cluster into a bucket or a folder; runs in the Pods of backup Jobs",
		Long: `Dump one instance of a MySQL cluster: a replica in sync, or else the primary. It needs mysqldump on the PATH.

Environment: TORPOR_MYSQL_PASSWORD is the password of ` + runner.BackupUser + `; credentials for a bucket are found as by AWS's own tools.`,
		Example: `  torpor backup --cluster default/test --host moco-test-0.moco-test.default.svc --bucket backups --endpoint http://minio:9000 --path-style`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Password = env(passwordVariable)
			return runner.RunBackup(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "namespace/name of the MySQLCluster; part of the keys of the stored objects")
	f.StringArrayVar(&o.Hosts, "host", nil, "host name of an instance; repeat the flag for each instance, in the order of their ordinals")
	f.BoolVar(&o.IsCopy, "copy", false, "the cluster replicates from an external server, so no instance accepts writes")
	f.DurationVar(&o.MaxLag, "max-lag", time.Minute, "maximum replication lag of the replica that is dumped; 0 means no limit")
	f.DurationVar(&o.Retention, "retention", 0, "how long backups and binary logs are kept; 0 means no limit")
	f.StringVar(&o.Result, "result", "", "file for the outcome, as JSON")
	o.Bucket.AddFlags(f)
	return cmd
}

func restoreCommand(logs io.Writer, env func(string) string) *cobra.Command {
	o := runner.RestoreOptions{Clock: clock.RealClock{}, Log: slog.New(slog.NewJSONHandler(logs, nil))}
	var point string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Fill an empty instance from a backup; runs in the Pods of restore Jobs",
		Long: `Fill an empty instance from the newest backup that is not after a point in time. It needs mysql on the PATH. After a
killed run, run it again: it first removes only the parts that the killed run restored.

Environment: TORPOR_MYSQL_PASSWORD is the password of ` + runner.RestoreUser + `; credentials for a bucket are found as by AWS's own tools.`,
		Example: `  torpor restore --source default/test --restore-point 2026-11-20T22:00:00Z --host moco-new-0.moco-new.default.svc --folder /backup`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := time.Parse(time.RFC3339, point)
			if err != nil {
				return fmt.Errorf("--restore-point: expected a time such as 2026-11-20T22:00:00Z, found %q", point)
			}
			o.Point, o.Password = at, env(passwordVariable)
			err = runner.RunRestore(cmd.Context(), o)
			if refused, ok := errors.AsType[*runner.RefusedError](err); ok {
				return exit.Error{Code: runner.RefusedExitCode, Err: refused}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", "", "namespace/name of the MySQLCluster that was backed up")
	f.StringVar(&point, "restore-point", "", "point in time to restore, such as 2026-11-20T22:00:00Z")
	f.BoolVar(&o.FailsOnLeftOut, "fail-on-error", false, "fail if MySQL rejects a part of the backup, instead of omitting the part")
	f.StringVar(&o.Host, "host", "", "host name of the instance to fill")
	f.DurationVar(&o.Wait, "wait", time.Hour, "how long to wait for a response from the instance")
	f.StringVar(&o.Schema, "schema", "", "the only schema to restore; empty means all")
	f.StringArrayVar(&o.Users, "user", nil, "the only accounts to restore, as name or name@host; empty means all")
	f.StringVar(&o.Result, "result", "", "file for the outcome, as JSON")
	o.Bucket.AddFlags(f)
	return cmd
}

func shipBinlogsCommand(logs io.Writer, env func(string) string) *cobra.Command {
	o := runner.ShipOptions{Clock: clock.RealClock{}, Log: slog.New(slog.NewJSONHandler(logs, nil))}
	cmd := &cobra.Command{
		Use:   "ship-binlogs",
		Short: "Copy the binary logs of a MySQL cluster into a bucket or a folder until the process is stopped; runs in its own Pod",
		Long: `Copy the binary logs of a MySQL cluster, so that a restore can reach any point in time. It needs mysqlbinlog on the PATH. The
bucket also records the position from which a later run continues. Only transactions that the primary has executed are copied.

Environment: TORPOR_MYSQL_PASSWORD is the password of ` + runner.BackupUser + `; credentials for a bucket are found as by AWS's own tools.`,
		Example: `  torpor ship-binlogs --cluster default/test --host moco-test-0.moco-test.default.svc --bucket backups --endpoint http://minio:9000 --path-style`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Password = env(passwordVariable)
			return runner.RunShipping(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "namespace/name of the MySQLCluster; part of the keys of the stored objects")
	f.StringArrayVar(&o.Hosts, "host", nil, "host name of an instance; repeat the flag for each instance, in the order of their ordinals")
	f.DurationVar(&o.Interval, "interval", 5*time.Second, "interval at which new events are stored")
	f.StringVar(&o.Spool, "spool", "", "folder for data that is being uploaded; empty means the temporary folder of the machine")
	f.StringVar(&o.Address, "address", "", "host:port on which the status is served; empty serves no status")
	o.Bucket.AddFlags(f)
	return cmd
}

func copyCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "copy PATH",
		Short:  "Copy this program to a path, for a container with another image",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return runner.CopyProgram(args[0]) },
	}
}
