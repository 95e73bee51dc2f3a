// SPDX-License-Identifier: Apache-2.0

package mysqlshdump

import (
	"regexp"
	"slices"
	"strings"
)

// Account is a user or role, with the statements that create it.
type Account struct {
	User, Host, Create string
	Grants             []string
}

var (
	// accountBlock matches the comment in front of the statements about an account.
	accountBlock = regexp.MustCompile(`(?m)^-- begin (user|grants|default role) (.+)$`)
	// createdAccount matches the beginning of a statement that creates an account.
	createdAccount = regexp.MustCompile("(?s)^CREATE (?:USER|ROLE) (?:IF NOT EXISTS )?" + quotedPart + "@" + quotedPart)
)

const quotedPart = "(?:'((?:[^'\\\\]|''|\\\\.)*)'|`((?:[^`]|``)*)`)"

// Accounts returns the accounts of the dump, without the accounts mysql.* that every server has.
func (d *Dump) Accounts() ([]Account, error) {
	var all []Account
	byName := map[string]int{}
	found := accountBlock.FindAllStringSubmatchIndex(d.users, -1)
	for i, at := range found {
		kind, who := d.users[at[2]:at[3]], d.users[at[4]:at[5]]
		end := len(d.users)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		body, _, isWhole := strings.Cut(d.users[at[1]:end], "\n-- end "+kind+" "+who+"\n")
		if !isWhole {
			return nil, formatErrorf("%s: expected the end of the statements about %s, found none", usersName, who)
		}
		statements := splitStatements(body)
		if kind != "user" {
			if a, isThere := byName[who]; isThere {
				all[a].Grants = append(all[a].Grants, statements...)
			}
			continue
		}
		if len(statements) == 0 {
			return nil, formatErrorf("%s: expected a statement that creates %s, found none", usersName, who)
		}
		parts := createdAccount.FindStringSubmatch(statements[0])
		if parts == nil {
			return nil, formatErrorf("%s: expected CREATE USER for %s, found another statement", usersName, who)
		}
		byName[who] = len(all)
		all = append(all, Account{User: unquote(parts[1], parts[2]), Host: unquote(parts[3], parts[4]), Create: statements[0]})
	}
	return slices.DeleteFunc(all, func(a Account) bool { return strings.HasPrefix(a.User, "mysql.") }), nil
}

func unquote(text, name string) string {
	if name != "" {
		return UnquoteName(name)
	}
	return strings.NewReplacer("''", "'", `\'`, "'", `\\`, `\`).Replace(text)
}

// splitStatements returns the statements of a text, without block comments. Semicolons in quotes do not end a
// statement.
func splitStatements(text string) []string {
	var all []string
	var one strings.Builder
	for text != "" {
		size := 1
		switch {
		case strings.HasPrefix(text, "/*"):
			_, rest, _ := strings.Cut(text[2:], "*/")
			text = rest
			continue
		case strings.ContainsRune("'\"`", rune(text[0])):
			size = quotedSize(text)
		case text[0] == ';':
			if s := strings.TrimSpace(one.String()); s != "" {
				all = append(all, s)
			}
			one.Reset()
			text = text[1:]
			continue
		}
		one.WriteString(text[:size])
		text = text[size:]
	}
	if s := strings.TrimSpace(one.String()); s != "" {
		all = append(all, s)
	}
	return all
}

// quotedSize returns the size of the quoted text at the beginning of a text.
func quotedSize(text string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}
