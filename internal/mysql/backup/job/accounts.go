// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// mysqlAccount is a user or a role of the database, with the statements that make it.
type mysqlAccount struct {
	User   string   `json:"user"`
	Host   string   `json:"host"`
	Create string   `json:"create"`
	Grants []string `json:"grants"`
}

// accountsQuery leaves out those that every cluster has with passwords of its own: a cluster's Secret and the accounts in
// its data must fit together. Accounts with default roles come after the roles.
const accountsQuery = `select user, host from mysql.user u
 where user not in ('root', '') and user not like 'mysql.%' and user not like 'moco-%'
 order by exists(select 1 from mysql.default_roles r where r.user = u.user and r.host = u.host), user, host`

func (a mysqlAccount) isEqual(b mysqlAccount) bool {
	return a.User == b.User && a.Host == b.Host && a.Create == b.Create && slices.Equal(a.Grants, b.Grants)
}

// matchesName reports whether the account is that of a name or name@host.
func (a mysqlAccount) matchesName(wish string) bool {
	plain := strings.NewReplacer("'", "", "`", "").Replace(wish)
	return plain == a.User || plain == a.User+"@"+a.Host
}

func (a mysqlAccount) quotedName() string { return quoteSQL(a.User) + "@" + quoteSQL(a.Host) }

func quoteSQL(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(text) + "'"
}

// readAccounts reads all accounts that are backed up.
func readAccounts(ctx context.Context, c *sql.Conn) ([]mysqlAccount, error) {
	if _, err := c.ExecContext(ctx, "set session print_identified_with_as_hex = on"); err != nil {
		return nil, fmt.Errorf("prepare the list of accounts: %w", err)
	}
	all, err := listAccountNames(ctx, c, accountsQuery)
	if err != nil {
		return nil, err
	}
	for i := range all {
		create, err := queryColumn(ctx, c, "show create user "+all[i].quotedName())
		if err != nil || len(create) != 1 {
			return nil, fmt.Errorf("read account %s: expected one statement, found %d: %w", all[i].quotedName(), len(create), err)
		}
		all[i].Create = strings.Replace(create[0], "CREATE USER ", "CREATE USER IF NOT EXISTS ", 1)
		if all[i].Grants, err = queryColumn(ctx, c, "show grants for "+all[i].quotedName()); err != nil {
			return nil, fmt.Errorf("read the rights of %s: %w", all[i].quotedName(), err)
		}
	}
	return all, nil
}

func listAccountNames(ctx context.Context, c *sql.Conn, query string) ([]mysqlAccount, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	defer func() { _ = rows.Close() }() // What went wrong is returned by Err.
	all := []mysqlAccount{}
	for rows.Next() {
		var a mysqlAccount
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

// selectAccounts returns the accounts of these names; all if there are no names.
func selectAccounts(all []mysqlAccount, wishes []string) ([]mysqlAccount, error) {
	if len(wishes) == 0 {
		return all, nil
	}
	for _, wish := range wishes {
		if !slices.ContainsFunc(all, func(a mysqlAccount) bool { return a.matchesName(wish) }) {
			return nil, fmt.Errorf("expected account %q in the backup, found no such; correct spec.restore.users in a new MySQLCluster", wish)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a mysqlAccount) bool { return !slices.ContainsFunc(wishes, a.matchesName) }), nil
}
