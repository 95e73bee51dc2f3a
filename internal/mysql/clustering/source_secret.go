// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// OutsideSource is the external server that the primary is cloned from and follows, as described by the Secret of
// spec.replicationSourceSecretName.
type OutsideSource struct {
	Host           string
	Port           int
	User, Password string
	// AfterClone is SQL that the administrative account runs once in the copy.
	AfterClone string
}

// sourceKey is a key of the Secret with the maximum length of its value. The limits of HOST, USER and PASSWORD are
// those of CHANGE REPLICATION SOURCE.
type sourceKey struct {
	name          string
	characters    int
	isOptional    bool
	mayBreakLines bool
	fieldOf       func(*OutsideSource) *string
}

// maxSourceSecret limits the total size of all keys and values, in bytes.
const maxSourceSecret = 128 << 10

func sourceKeys() []sourceKey {
	return []sourceKey{
		{name: "HOST", characters: 255, fieldOf: func(s *OutsideSource) *string { return &s.Host }},
		{name: "USER", characters: 96, fieldOf: func(s *OutsideSource) *string { return &s.User }},
		{name: "PASSWORD", characters: 32, fieldOf: func(s *OutsideSource) *string { return &s.Password }},
		{
			name: "INIT_AFTER_CLONE_SQL", characters: 64 << 10, isOptional: true, mayBreakLines: true,
			fieldOf: func(s *OutsideSource) *string { return &s.AfterClone },
		},
	}
}

// ParseOutsideSource parses the Secret. The returned problems are sorted. They contain keys and limits but no values,
// because every reader of the cluster can see them. The source is valid only if there are no problems. INIT_USER and
// INIT_PASSWORD are not read, because the Pod creates the accounts of a copy without logging in.
func ParseOutsideSource(data map[string][]byte) (OutsideSource, []string) {
	size := 0
	for key, value := range data {
		size += len(key) + len(value)
	}
	if size > maxSourceSecret {
		return OutsideSource{}, []string{fmt.Sprintf("expected %d bytes in all at most, found %d", maxSourceSecret, size)}
	}
	var source OutsideSource
	var problems []string
	for _, key := range sourceKeys() {
		value := string(data[key.name])
		if problem := key.findProblem(value); problem != "" {
			problems = append(problems, key.name+": "+problem)
			continue
		}
		*key.fieldOf(&source) = value
	}
	port, err := strconv.ParseUint(string(data["PORT"]), 10, 16)
	if err != nil || port == 0 {
		problems = append(problems, "PORT: expected a number from 1 to 65535, found none")
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return OutsideSource{}, problems
	}
	source.Port = int(port)
	return source, nil
}

func (k sourceKey) findProblem(value string) string {
	switch {
	case value == "" && k.isOptional:
		return ""
	case value == "":
		return "expected a value, found none"
	case !utf8.ValidString(value):
		return "expected UTF-8, found other bytes"
	case utf8.RuneCountInString(value) > k.characters:
		return fmt.Sprintf("expected at most %d characters, found %d", k.characters, utf8.RuneCountInString(value))
	case strings.ContainsRune(value, 0):
		return "expected text, found a NUL"
	case !k.mayBreakLines && strings.ContainsAny(value, "\r\n"):
		return "expected one line, found a line break; write the Secret without one at the end"
	default:
		return ""
	}
}
