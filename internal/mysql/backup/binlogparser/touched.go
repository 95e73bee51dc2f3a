// SPDX-License-Identifier: Apache-2.0

package binlogparser

import (
	"slices"
	"strings"
)

// parseTransactionControl returns the verb of a statement that only begins, ends or marks a transaction, and the name
// of an XA transaction. The verb is empty for other statements.
func parseTransactionControl(text string) (verb, branch string) {
	l := lexer{left: text}
	switch verb := l.nextWord(); verb {
	case "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE":
		return verb, ""
	case "XA":
		verb += " " + l.nextWord()
		return verb, strings.TrimSpace(l.left)
	default:
		return "", ""
	}
}

// isMaintenance reports whether a statement is of a kind that changes no data and no definition, such as FLUSH.
func isMaintenance(text string) bool {
	l := lexer{left: text}
	return slices.Contains([]string{"FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK"}, l.nextWord())
}

// parseTouchedSchemas returns the schemas that a statement depends on, for the kinds of statements for which servers do
// not list schemas. It returns none for a statement about an object that is not in a schema.
func parseTouchedSchemas(s Statement) ([]string, error) {
	l := lexer{left: s.Text}
	verb := l.nextWord()
	if verb == "TRUNCATE" {
		l.skipWords("TABLE")
		return l.takeSchemas(s, false)
	}
	if verb == "INSTALL" || verb == "UNINSTALL" {
		return nil, nil
	}
	object := l.nextWord()
	if verb == "CREATE" && object == "TABLE" {
		l.skipWords("IF", "NOT", "EXISTS")
		return l.takeSchemas(s, true)
	}
	objects := []string{"TABLESPACE", "UNDO", "LOGFILE", "SERVER", "SPATIAL", "INSTANCE"}
	if slices.Contains([]string{"CREATE", "ALTER", "DROP"}, verb) && slices.Contains(objects, object) {
		return nil, nil
	}
	return nil, inseparable("%s, which the binary log does not assign to a schema", describeStatement(s.Text))
}

// takeSchemas parses the name of a table and, if mayBeLike is set, that of the table after LIKE. It returns their
// schemas.
func (l *lexer) takeSchemas(s Statement, mayBeLike bool) ([]string, error) {
	first := l.nextSchema(s.Default)
	schemas := []string{first}
	if mayBeLike {
		l.skip("(")
		if l.skipWords("LIKE") {
			schemas = append(schemas, l.nextSchema(s.Default))
		}
	}
	if slices.Contains(schemas, "") {
		return nil, inseparable("%s without the name of a schema", describeStatement(s.Text))
	}
	slices.Sort(schemas)
	return slices.Compact(schemas), nil
}

// describeStatement returns the first words of a statement, because the rest may contain data.
func describeStatement(text string) string {
	l := lexer{left: text}
	words := []string{l.nextWord(), l.nextWord()}
	return "a statement " + strings.TrimSpace(strings.Join(words, " "))
}

// lexer parses words and names from the beginning of a statement.
type lexer struct{ left string }

// skipSpace skips white space and comments.
func (l *lexer) skipSpace() {
	for {
		l.left = strings.TrimLeft(l.left, " \t\r\n\f\v")
		var end string
		switch {
		case strings.HasPrefix(l.left, "/*!"): // The server executes the text of such a comment.
			l.left = strings.TrimLeft(l.left[len("/*!"):], "0123456789")
			continue
		case strings.HasPrefix(l.left, "*/"):
			l.left = l.left[len("*/"):]
			continue
		case strings.HasPrefix(l.left, "/*"):
			end = "*/"
		case strings.HasPrefix(l.left, "--"), strings.HasPrefix(l.left, "#"):
			end = "\n"
		default:
			return
		}
		_, l.left, _ = strings.Cut(l.left, end)
	}
}

func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b >= 0x80
}

// nextWord parses an unquoted word and returns it in upper case, or an empty string if there is none.
func (l *lexer) nextWord() string {
	l.skipSpace()
	end := 0
	for end < len(l.left) && isNameByte(l.left[end]) {
		end++
	}
	word := l.left[:end]
	l.left = l.left[end:]
	return strings.ToUpper(word)
}

// skipWords skips words if all of them follow.
func (l *lexer) skipWords(words ...string) bool {
	ahead := *l
	for _, word := range words {
		if ahead.nextWord() != word {
			return false
		}
	}
	*l = ahead
	return true
}

func (l *lexer) skip(text string) bool {
	l.skipSpace()
	found := strings.HasPrefix(l.left, text)
	l.left = strings.TrimPrefix(l.left, text)
	return found
}

// nextName parses an identifier, which may be quoted.
func (l *lexer) nextName() string {
	l.skipSpace()
	if l.left == "" || l.left[0] != '`' && l.left[0] != '"' {
		end := 0
		for end < len(l.left) && isNameByte(l.left[end]) {
			end++
		}
		name := l.left[:end]
		l.left = l.left[end:]
		return name
	}
	quote := l.left[:1]
	var name strings.Builder
	for l.left = l.left[1:]; ; {
		part, rest, isClosed := strings.Cut(l.left, quote)
		name.WriteString(part)
		l.left = rest
		if !isClosed || !strings.HasPrefix(rest, quote) {
			return name.String()
		}
		name.WriteString(quote) // A doubled quote represents one quote.
		l.left = rest[1:]
	}
}

// nextSchema parses the name of a table and returns its schema.
func (l *lexer) nextSchema(defaultSchema string) string {
	name := l.nextName()
	if l.skip(".") {
		l.nextName()
		return name
	}
	if name == "" {
		return ""
	}
	return defaultSchema
}
