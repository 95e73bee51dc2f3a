// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/internal/cfapi/fault"
)

const (
	defaultPerPage = 50
	maxPerPage     = 5000
	maxBody        = 1 << 20
)

// Page is which part of a list is wanted.
type Page struct {
	Number, PerPage int
	// OrderBy is a field, with a dash before it to have the last first; empty means as CF has it.
	OrderBy string
}

// PageOf reads page, per_page and order_by.
func PageOf(q url.Values) (Page, error) {
	p := Page{Number: 1, PerPage: defaultPerPage, OrderBy: q.Get("order_by")}
	for key, into := range map[string]*int{"page": &p.Number, "per_page": &p.PerPage} {
		if !q.Has(key) {
			continue
		}
		n, err := strconv.Atoi(q.Get(key))
		if err != nil || n < 1 || n > maxPerPage && key == "per_page" {
			return Page{}, fault.BadBody("The query parameter is invalid: " + key + ": expected a number from 1 to " + strconv.Itoa(maxPerPage) + ", found " + strconv.Quote(q.Get(key)))
		}
		*into = n
	}
	return p, nil
}

// Filter is a list of values of which one has to match; nil matches all.
type Filter []string

// FilterOf reads a list with commas.
func FilterOf(q url.Values, key string) Filter {
	if !q.Has(key) {
		return nil
	}
	return strings.Split(q.Get(key), ",")
}

// Has says that a value is wanted.
func (f Filter) Has(value string) bool { return f == nil || slices.Contains(f, value) }

// Decode reads a body of JSON; an empty one is as good as {}.
func Decode(body io.Reader, into any) error {
	raw, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	switch {
	case err != nil:
		return fault.BadBody("Request invalid due to parse error: the body ended early")
	case len(raw) > maxBody:
		return fault.BadBody("Request invalid due to parse error: expected at most 1 MiB")
	case len(strings.TrimSpace(string(raw))) == 0:
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.BadBody("Request invalid due to parse error: " + err.Error())
	}
	return nil
}
