// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// account is a user or a role of the database, with the statements that make it.
type account struct {
	User   string   `json:"user"`
	Host   string   `json:"host"`
	Create string   `json:"create"`
	Grants []string `json:"grants"`
}

// accountsQuery leaves out those that every cluster has with passwords of its own: a cluster's Secret and the accounts in
// its data must fit together. Who has default roles comes after them.
const accountsQuery = `select user, host from mysql.user u
 where user not in ('root', '') and user not like 'mysql.%' and user not like 'moco-%'
 order by exists(select 1 from mysql.default_roles r where r.user = u.user and r.host = u.host), user, host`

func (a account) same(b account) bool {
	return a.User == b.User && a.Host == b.Host && a.Create == b.Create && slices.Equal(a.Grants, b.Grants)
}

// named says whether the account is meant by name or by name@host.
func (a account) named(wish string) bool {
	plain := strings.NewReplacer("'", "", "`", "").Replace(wish)
	return plain == a.User || plain == a.User+"@"+a.Host
}

func (a account) quoted() string { return quote(a.User) + "@" + quote(a.Host) }

func quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(text) + "'"
}

// accounts reads all accounts that are backed up.
func accounts(ctx context.Context, c *sql.Conn) ([]account, error) {
	if _, err := c.ExecContext(ctx, "set session print_identified_with_as_hex = on"); err != nil {
		return nil, fmt.Errorf("prepare the list of accounts: %w", err)
	}
	all, err := names(ctx, c, accountsQuery)
	if err != nil {
		return nil, err
	}
	for i := range all {
		create, err := column(ctx, c, "show create user "+all[i].quoted())
		if err != nil || len(create) != 1 {
			return nil, fmt.Errorf("read account %s: expected one statement, found %d: %w", all[i].quoted(), len(create), err)
		}
		all[i].Create = strings.Replace(create[0], "CREATE USER ", "CREATE USER IF NOT EXISTS ", 1)
		if all[i].Grants, err = column(ctx, c, "show grants for "+all[i].quoted()); err != nil {
			return nil, fmt.Errorf("read the rights of %s: %w", all[i].quoted(), err)
		}
	}
	return all, nil
}

func names(ctx context.Context, c *sql.Conn, query string) ([]account, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	defer func() { _ = rows.Close() }() // What went wrong is told by Err.
	all := []account{}
	for rows.Next() {
		var a account
		if err := rows.Scan(&a.User, &a.Host); err != nil {
			return nil, fmt.Errorf("list accounts: %w", err)
		}
		all = append(all, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return all, nil
}

// chosen are the accounts to restore; no wishes means all.
func chosen(all []account, wishes []string) ([]account, error) {
	if len(wishes) == 0 {
		return all, nil
	}
	for _, wish := range wishes {
		if !slices.ContainsFunc(all, func(a account) bool { return a.named(wish) }) {
			return nil, fmt.Errorf("expected account %q in the backup, found no such; correct spec.restore.users in a new MySQLCluster", wish)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a account) bool { return !slices.ContainsFunc(wishes, a.named) }), nil
}
