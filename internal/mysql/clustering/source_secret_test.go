// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func sourceSecret(changes map[string]string) map[string][]byte {
	data := map[string][]byte{"HOST": []byte("db.example"), "PORT": []byte("3306"), "USER": []byte("donor"), "PASSWORD": []byte("pass-of-donor")}
	for key, value := range changes {
		data[key] = []byte(value)
	}
	return data
}

func TestParseOutsideSource(t *testing.T) {
	const long = "pass-of-donor-of-more-than-32-chars"
	for name, row := range map[string]struct {
		changes  map[string]string
		problems []string
	}{
		"MOCO's keys: accepted":                    {map[string]string{"INIT_USER": "clone-init", "INIT_PASSWORD": "x", "INIT_AFTER_CLONE_SQL": "select 1;\nselect 2"}, nil},
		"an empty host and an empty user: refused": {map[string]string{"HOST": "", "USER": ""}, []string{"HOST: expected a value, found none", "USER: expected a value, found none"}},
		"a port that is not a number: refused":     {map[string]string{"PORT": "pass-of-donor"}, []string{"PORT: expected a number from 1 to 65535, found none"}},
		"port 0: refused":                          {map[string]string{"PORT": "0"}, []string{"PORT: expected a number from 1 to 65535, found none"}},
		"a port that is too high: refused":         {map[string]string{"PORT": "65536"}, []string{"PORT: expected a number from 1 to 65535, found none"}},
		"the highest port: accepted":               {map[string]string{"PORT": "65535"}, nil},
		"a line break after the host: refused":     {map[string]string{"HOST": "db.example\n"}, []string{"HOST: expected one line, found a line break; write the Secret without one at the end"}},
		"a user with a NUL character: refused":     {map[string]string{"USER": "do\x00nor"}, []string{"USER: expected text, found a NUL"}},
		"a user that is not UTF-8: refused":        {map[string]string{"USER": "do\xffnor"}, []string{"USER: expected UTF-8, found other bytes"}},
		"a password that is too long: refused":     {map[string]string{"PASSWORD": long}, []string{"PASSWORD: expected at most 32 characters, found 35"}},
		"a Secret that is too large: refused":      {map[string]string{"other": strings.Repeat("x", maxSourceSecret)}, []string{"expected 131072 bytes in all at most, found 131129"}},
	} {
		t.Run(name, func(t *testing.T) {
			source, problems := ParseOutsideSource(sourceSecret(row.changes))
			if !slices.Equal(problems, row.problems) {
				t.Fatalf("expected %q, found %q", row.problems, problems)
			}
			if strings.Contains(strings.Join(problems, ""), "pass-of-donor") {
				t.Errorf("expected nothing of the Secret in %q", problems)
			}
			if isEmpty := source == (OutsideSource{}); isEmpty != (len(problems) > 0) {
				t.Errorf("expected a source exactly without problems, found host %q", source.Host)
			}
		})
	}
}

// FuzzParseOutsideSource searches for values that could break out of a quoted string in a statement or an option file.
func FuzzParseOutsideSource(f *testing.F) {
	f.Add("db.example", "3306", "donor", "secret", "")
	f.Add("a\nb", "-1", "\x00", "\xff", "select 1;\n")
	f.Fuzz(func(t *testing.T, host, port, user, password, after string) {
		data := sourceSecret(map[string]string{"HOST": host, "PORT": port, "USER": user, "PASSWORD": password, "INIT_AFTER_CLONE_SQL": after})
		before := maps.Clone(data)
		source, problems := ParseOutsideSource(data)
		if len(before) != len(data) {
			t.Error("expected the Secret to stay as it is")
		}
		if len(problems) > 0 {
			return
		}
		if strings.ContainsAny(source.Host+source.User+source.Password, "\r\n\x00") || source.Port < 1 || source.Port > 65535 || source.Host == "" {
			t.Errorf("expected a usable source, found host %q, port %d", source.Host, source.Port)
		}
	})
}
