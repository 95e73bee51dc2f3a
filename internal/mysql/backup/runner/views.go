// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// maxBrokenViews limits the number of views that a backup omits.
const maxBrokenViews = 1000

// brokenView is a view that refers to a missing object. mysqldump fails on such a view.
type brokenView struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// Create is the statement that creates the view, and Collation its collation_connection. Create is empty if a
	// schema is missing, because MySQL does not show the statement in that case.
	Create    string `json:"create"`
	Collation string `json:"collation"`

	// reason is MySQL's error for the statement in the dump. It is empty for a view that is not in the dump.
	reason string
}

func (v brokenView) quotedName() string {
	return mysqlshdump.QuoteName(v.Schema) + "." + mysqlshdump.QuoteName(v.Name)
}

// backupRecord is the object that completes a backup.
type backupRecord struct {
	mocov1beta2.BackupStatus

	// BrokenViews lists the views that are not in the dump.
	BrokenViews []brokenView `json:"brokenViews,omitempty"`
	// HasTimeZones is true if the source had named time zones.
	HasTimeZones bool `json:"hasTimeZones,omitempty"`
	// Contents describes the contents of the dump.
	Contents *dumpContents `json:"contents,omitempty"`
}

// brokenViewsQuery lists the views that MySQL reports as invalid. --ignore-table compares schema.name as a single text
// and ignores case. If that text also matches another table, the view is not listed, and mysqldump reports an error for
// it.
const brokenViewsQuery = `select table_schema, table_name from information_schema.tables v
 where table_type = 'VIEW' and table_comment <> 'VIEW' and table_schema not in ` + ownSchemas + ` and not exists (
  select 1 from information_schema.tables t where (t.table_schema, t.table_name) <> (v.table_schema, v.table_name)
   and concat(t.table_schema, '.', t.table_name) = concat(v.table_schema, '.', v.table_name) collate utf8mb3_general_ci)
 order by 1, 2`

// listBrokenViews lists the views that a dump has to omit.
func listBrokenViews(ctx context.Context, c *sql.Conn) ([]brokenView, error) {
	rows, err := c.QueryContext(ctx, brokenViewsQuery)
	if err != nil {
		return nil, fmt.Errorf("list broken views: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
	var all []brokenView
	for rows.Next() {
		var v brokenView
		if err := rows.Scan(&v.Schema, &v.Name); err != nil {
			return nil, fmt.Errorf("list broken views: %w", err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list broken views: %w", err)
	}
	if len(all) > maxBrokenViews {
		return nil, fmt.Errorf("expected at most %d views that refer to missing tables, columns or routines, found %d; "+
			"correct or drop them", maxBrokenViews, len(all))
	}
	var broken []brokenView
	for _, v := range all {
		// mysqldump fails if this statement fails. Views that it can dump are not omitted.
		_, err := queryColumn(ctx, c, "show fields from "+v.quotedName())
		if err == nil {
			continue
		}
		if errorNumber(err) != 0 {
			var name, client string
			err = c.QueryRowContext(ctx, "show create view "+v.quotedName()).Scan(&name, &v.Create, &client, &v.Collation)
		}
		if err != nil && errorNumber(err) == 0 {
			return nil, fmt.Errorf("read view %s: %w", v.quotedName(), err)
		}
		broken = append(broken, v)
	}
	return broken, nil
}

// ignoreFlags returns flags that make mysqldump omit views.
func ignoreFlags(views []brokenView) []string {
	var flags []string
	for _, v := range views {
		flags = append(flags, "--ignore-table="+v.Schema+"."+v.Name)
	}
	return flags
}

// brokenViewWarnings returns a warning that lists the first few views.
func brokenViewWarnings(views []brokenView, what string) []string {
	if len(views) == 0 {
		return nil
	}
	var names []string
	for _, v := range views[:min(len(views), maxNamed)] {
		names = append(names, v.Schema+"."+v.Name)
	}
	return []string{fmt.Sprintf("%d views are %s, because they refer to tables, columns or routines that are missing: %s; "+
		"correct or drop them", len(views), what, strings.Join(names, ", "))}
}

// makeViews creates the views and returns those whose tables, columns or routines are still missing. It repeats this
// until no view is created, because views may depend on each other.
func (t restoreTarget) makeViews(ctx context.Context, views []brokenView) ([]brokenView, error) {
	for {
		var left []brokenView
		for _, v := range views {
			if v.Create == "" {
				left = append(left, v)
				continue
			}
			err := t.makeView(ctx, v)
			if err != nil && errorNumber(err) == 0 {
				return nil, fmt.Errorf("create view %s: the instance %s", v.quotedName(), describeError(err))
			}
			if err != nil {
				left = append(left, v)
			}
		}
		if len(left) == 0 || len(left) == len(views) {
			return left, nil
		}
		views = left
	}
}

func (t restoreTarget) makeView(ctx context.Context, v brokenView) error {
	if err := t.execStatement(ctx, "set session collation_connection = ?", v.Collation); err != nil {
		return err
	}
	return t.execStatement(ctx, strings.Replace(v.Create, "CREATE ", "CREATE OR REPLACE ", 1))
}

// standInViews creates stand-ins for views that could not be created: views of the marker table with the same names.
// Statements in the binary logs that drop or replace such a view then succeed, as they did on the source.
func (t restoreTarget) standInViews(ctx context.Context, views []brokenView) error {
	var statements []string
	for _, v := range views {
		statements = append(statements,
			"create or replace view "+v.quotedName()+" as select record from "+markerSchema+".backup")
	}
	return t.execAll(ctx, "create stand-ins for views", statements...)
}

// standInsQuery lists the views that standInViews created and that no statement has replaced.
const standInsQuery = "select concat('`', replace(table_schema, '`', '``'), '`.`', replace(table_name, '`', '``'), '`')" +
	" from information_schema.views where view_definition like '%`" + markerSchema + "`.`backup`%'"

// replaceStandIns removes the stand-ins and creates the views whose tables, columns or routines were restored from the
// binary logs. It returns the remaining views.
func (t restoreTarget) replaceStandIns(ctx context.Context, views []brokenView) ([]brokenView, error) {
	if len(views) == 0 {
		return nil, nil
	}
	standIns, err := queryColumn(ctx, t.Conn, standInsQuery)
	if err != nil {
		return nil, fmt.Errorf("list stand-ins for views: %w", err)
	}
	views = slices.DeleteFunc(slices.Clone(views), func(v brokenView) bool {
		return !slices.Contains(standIns, v.quotedName())
	})
	var statements []string
	for _, v := range views {
		statements = append(statements, "drop view "+v.quotedName())
	}
	if err := t.execAll(ctx, "remove stand-ins for views", statements...); err != nil {
		return nil, err
	}
	return t.makeViews(ctx, views)
}
