// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// mysqlAccount is a MySQL user or role, with the statements that create it.
type mysqlAccount struct {
	User   string   `json:"user"`
	Host   string   `json:"host"`
	Create string   `json:"create"`
	Grants []string `json:"grants"`
	// Passwords are the statements that first set the account's second password and then its first one. They are empty
	// if the account has one password.
	Passwords []string `json:"passwords,omitempty"`
}

// listUnrestoredNames returns the names of accounts that no backup includes: root, and the accounts of package users.
// Every cluster has the latter accounts, with passwords that must match those in its own Secret.
func listUnrestoredNames() []string {
	names := []string{"root"}
	for _, a := range mysqlusers.ListAccounts() {
		names = append(names, a.Name)
	}
	return names
}

// accountsQuery returns a query for all accounts. Accounts with default roles come after the roles.
func accountsQuery() string {
	var left []string
	for _, name := range listUnrestoredNames() {
		left = append(left, quoteSQL(name))
	}
	return `select user, host from mysql.user u
 where user not in (` + strings.Join(left, ", ") + `) and user not like 'mysql.%'
 order by exists(select 1 from mysql.default_roles r where r.user = u.user and r.host = u.host), user, host`
}

func (a mysqlAccount) isEqual(b mysqlAccount) bool {
	return a.User == b.User && a.Host == b.Host && a.Create == b.Create && slices.Equal(a.Grants, b.Grants) &&
		slices.Equal(a.Passwords, b.Passwords)
}

// matchesName reports whether the account matches a name or name@host.
func (a mysqlAccount) matchesName(wish string) bool {
	plain := strings.NewReplacer("'", "", "`", "").Replace(wish)
	return plain == a.User || plain == a.User+"@"+a.Host
}

func (a mysqlAccount) quotedName() string { return quoteSQL(a.User) + "@" + quoteSQL(a.Host) }

func quoteSQL(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(text) + "'"
}

func readAccounts(ctx context.Context, c *sql.Conn) ([]mysqlAccount, error) {
	if _, err := c.ExecContext(ctx, "set session print_identified_with_as_hex = on"); err != nil {
		return nil, fmt.Errorf("set print_identified_with_as_hex: %w", err)
	}
	all, err := listAccountNames(ctx, c, accountsQuery())
	if err != nil {
		return nil, err
	}
	for i := range all {
		create, err := queryColumn(ctx, c, "show create user "+all[i].quotedName())
		if err != nil || len(create) != 1 {
			return nil, fmt.Errorf("read account %s: expected one statement, found %d: %w", all[i].quotedName(), len(create), err)
		}
		all[i].Create = strings.Replace(create[0], "CREATE USER ", "CREATE USER IF NOT EXISTS ", 1)
		if all[i].Passwords, err = readSecondPassword(ctx, c, all[i]); err != nil {
			return nil, err
		}
		if all[i].Grants, err = queryColumn(ctx, c, "show grants for "+all[i].quotedName()); err != nil {
			return nil, fmt.Errorf("read the grants of %s: %w", all[i].quotedName(), err)
		}
	}
	return all, nil
}

func listAccountNames(ctx context.Context, c *sql.Conn, query string) ([]mysqlAccount, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
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

// selectAccounts returns the accounts with these names, or all accounts if there are no names.
func selectAccounts(all []mysqlAccount, wishes []string) ([]mysqlAccount, error) {
	if len(wishes) == 0 {
		return all, nil
	}
	for _, wish := range wishes {
		if !slices.ContainsFunc(all, func(a mysqlAccount) bool { return a.matchesName(wish) }) {
			return nil, &RefusedError{fmt.Errorf(
				"expected account %q in the backup, found none; correct spec.restore.users in a new MySQLCluster", wish)}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a mysqlAccount) bool { return !slices.ContainsFunc(wishes, a.matchesName) }), nil
}

// secondPasswordQuery returns the authentication plugin and the two hashes of an account that was altered with RETAIN
// CURRENT PASSWORD: https://dev.mysql.com/doc/refman/en/password-management.html#dual-passwords
const secondPasswordQuery = `select plugin, hex(authentication_string), hex(user_attributes->>'$.additional_password') from mysql.user
 where user = ? and host = ? and user_attributes->>'$.additional_password' is not null`

// readSecondPassword returns the statements that restore both passwords of an account, or nil if it has one password.
// SHOW CREATE USER shows only one of them.
func readSecondPassword(ctx context.Context, c *sql.Conn, a mysqlAccount) ([]string, error) {
	var plugin, first, second string
	err := c.QueryRowContext(ctx, secondPasswordQuery, a.User, a.Host).Scan(&plugin, &first, &second)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the second password of %s: the instance %s", a.quotedName(), describeError(err))
	}
	alter := "ALTER USER " + a.quotedName() + " IDENTIFIED WITH " + quoteSQL(plugin) + " AS 0x"
	return []string{alter + second, alter + first + " RETAIN CURRENT PASSWORD"}, nil
}

// isRightOnNothing reports whether a GRANT failed because its schema, table, column or routine does not exist.
func isRightOnNothing(err error) bool {
	const noSchema, noColumn, noTable, noRoutine = 1049, 1054, 1146, 1305
	return slices.Contains([]uint16{noSchema, noColumn, noTable, noRoutine}, errorNumber(err))
}

// addAccounts creates all accounts before it grants them privileges, because an account may be granted to another one
// as a role. An account or a privilege that MySQL refuses is left out. A backup may contain grants on a dropped table
// or column, because MySQL keeps such grants. MySQL refuses to create them again, so they are left out. This causes a
// warning unless only one schema is restored.
func (o RestoreOptions) addAccounts(ctx context.Context, t restoreTarget, all []mysqlAccount, left *leftOutParts) (warnings []string, err error) {
	made, err := t.createAccounts(ctx, all, left)
	if err != nil {
		return nil, err
	}
	for _, a := range made {
		missing := 0
		for _, grant := range a.Grants {
			n, err := t.addGrant(ctx, a, grant, left)
			if err != nil {
				return nil, fmt.Errorf("grant privileges to account %s: MySQL %s", a.quotedName(), describeError(err))
			}
			missing += n
		}
		if missing > 0 {
			o.Log.Info("Left out grants on objects that were not restored", "account", a.quotedName(), "grants", missing)
		}
		if missing > 0 && o.Schema == "" {
			warnings = append(warnings, fmt.Sprintf("account %s lacks %d of its grants, which are for tables, columns or routines that were not restored", a.quotedName(), missing))
		}
	}
	return warnings, nil
}

// createAccounts creates the accounts and returns those that MySQL accepts.
func (t restoreTarget) createAccounts(ctx context.Context, all []mysqlAccount, left *leftOutParts) (made []mysqlAccount, err error) {
	for _, a := range all {
		refused, err := t.refusal(ctx, a.Create)
		if err != nil {
			return nil, fmt.Errorf("create account %s: MySQL %s", a.quotedName(), describeError(err))
		}
		if refused != "" {
			left.add("", "account %s is not restored: %s", a.quotedName(), refused)
			continue
		}
		made = append(made, a)
		for _, statement := range a.Passwords {
			if refused, err = t.refusal(ctx, statement); err != nil {
				return nil, fmt.Errorf("set the passwords of account %s: MySQL %s", a.quotedName(), describeError(err))
			}
			if refused != "" {
				left.add("", "the second password of account %s is not restored: %s", a.quotedName(), refused)
				break
			}
		}
	}
	return made, nil
}

// refusal runs a statement, and returns MySQL's error as text if MySQL rejects the statement. It returns other errors,
// such as errors of the server or the connection, as errors.
func (t restoreTarget) refusal(ctx context.Context, statement string) (string, error) {
	err := t.execStatement(ctx, statement)
	refused, isServers := errors.AsType[*driver.MySQLError](err)
	if !isServers || isAboutTheServer(int(refused.Number)) {
		return "", err
	}
	number := int(refused.Number)
	return statementFailure{number: number, sentence: serverSentence(number, refused.Message)}.String(), nil
}

// addGrant runs a GRANT statement. It returns 1 if the GRANT is for an object that does not exist. If MySQL rejects the
// GRANT for another reason, addGrant grants the privileges one by one.
func (t restoreTarget) addGrant(ctx context.Context, a mysqlAccount, grant string, left *leftOutParts) (missing int, err error) {
	if err = t.execStatement(ctx, grant); isRightOnNothing(err) {
		return 1, nil
	}
	if err == nil {
		return 0, nil
	}
	for privilege, statement := range splitGrant(grant) {
		refused, err := t.refusal(ctx, statement)
		if err != nil {
			return 0, err
		}
		if refused != "" {
			left.add("", "a privilege of account %s is not restored: %s: %s", a.quotedName(), privilege, refused)
		}
	}
	return 0, nil
}

// severalPrivileges matches a GRANT whose privileges have no columns.
var severalPrivileges = regexp.MustCompile(`^GRANT ([A-Z0-9_ ]+(?:,[A-Z0-9_ ]+)*) (ON .*)$`)

// splitGrant yields each privilege of a GRANT, with a GRANT statement for this privilege alone.
func splitGrant(grant string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		found := severalPrivileges.FindStringSubmatch(grant)
		if found == nil {
			yield(strings.TrimPrefix(grant, "GRANT "), grant)
			return
		}
		for privilege := range strings.SplitSeq(found[1], ",") {
			privilege = strings.TrimSpace(privilege)
			if !yield(privilege, "GRANT "+privilege+" "+found[2]) {
				return
			}
		}
	}
}
