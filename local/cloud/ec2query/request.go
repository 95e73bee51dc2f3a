// SPDX-License-Identifier: Apache-2.0

package ec2query

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Request is one decoded call.
type Request struct {
	// Action is the name of the call, as StopInstances.
	Action string
	form   url.Values
}

// Tag is a tag as a request names it.
type Tag struct {
	Key, Value string
	// HasValue distinguishes an empty value from none.
	HasValue bool
}

// Filter is one Filter.N of a request: any of the values matches.
type Filter struct {
	Name   string
	Values []string
}

// TagSpecification holds the tags for one type of resource that a call creates.
type TagSpecification struct {
	ResourceType string
	Tags         []Tag
}

// ReadRequest decodes a GET or POST. The error is an *Error.
func ReadRequest(w http.ResponseWriter, r *http.Request) (Request, error) {
	const largestBody = 1 << 20
	r.Body = http.MaxBytesReader(w, r.Body, largestBody)
	if err := r.ParseForm(); err != nil {
		return Request{}, NewErrorf(InvalidParameterValue, "The request cannot be read as a form of at most %d bytes: %v", largestBody, err)
	}
	return Request{Action: r.Form.Get("Action"), form: r.Form}, nil
}

// StringParameter returns the value of a parameter, or the empty string.
func (q Request) StringParameter(name string) string { return q.form.Get(name) }

// ParseNumber returns a whole number and whether it was given. The error is an *Error.
func (q Request) ParseNumber(name string) (int, bool, error) {
	text := q.StringParameter(name)
	if text == "" {
		return 0, false, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, false, NewErrorf(InvalidParameterValue, "Value (%s) for parameter %s is invalid. Expecting a whole number.", text, name)
	}
	return number, true, nil
}

// ParseFlag returns a true or false; one that is missing is false. The error is an *Error.
func (q Request) ParseFlag(name string) (bool, error) {
	switch text := q.StringParameter(name); strings.ToLower(text) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, NewErrorf(InvalidParameterValue, "Value (%s) for parameter %s is invalid. Expecting true or false.", text, name)
	}
}

// ListValues returns name.1, name.2 … in the order of their numbers, each value once.
func (q Request) ListValues(name string) []string {
	var values []string
	for _, item := range q.itemNames(name) {
		if value := q.StringParameter(item); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

// ListTags returns prefix.1.Key, prefix.1.Value ….
func (q Request) ListTags(prefix string) []Tag {
	var tags []Tag
	for _, item := range q.itemNames(prefix) {
		tags = append(tags, Tag{Key: q.StringParameter(item + ".Key"), Value: q.StringParameter(item + ".Value"), HasValue: q.form.Has(item + ".Value")})
	}
	return tags
}

// ListTagSpecifications returns what TagSpecification.1 … hold.
func (q Request) ListTagSpecifications() []TagSpecification {
	var specifications []TagSpecification
	for _, item := range q.itemNames("TagSpecification") {
		specifications = append(specifications, TagSpecification{ResourceType: q.StringParameter(item + ".ResourceType"), Tags: q.ListTags(item + ".Tag")})
	}
	return specifications
}

// ParseFilters returns Filter.1 …. The error is an *Error.
func (q Request) ParseFilters() ([]Filter, error) {
	var filters []Filter
	for _, item := range q.itemNames("Filter") {
		filter := Filter{Name: q.StringParameter(item + ".Name"), Values: q.ListValues(item + ".Value")}
		if filter.Name == "" || len(filter.Values) == 0 {
			return nil, NewErrorf(MissingParameter, "The request must contain the parameters %s.Name and %s.Value.1", item, item)
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

// HashParameters is the same for two requests with the same parameters, leaving out the named ones.
func (q Request) HashParameters(except ...string) string {
	form := url.Values{}
	for name, values := range q.form {
		if !slices.Contains(except, name) {
			form[name] = values
		}
	}
	sum := sha256.Sum256([]byte(form.Encode()))
	return hex.EncodeToString(sum[:8])
}

// itemNames returns "prefix.N" for each number N that occurs, in numeric order.
func (q Request) itemNames(prefix string) []string {
	var numbers []int
	for name := range q.form {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, ".")
		if number, err := strconv.Atoi(digits); err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	var items []string
	for _, number := range slices.Compact(numbers) {
		items = append(items, prefix+"."+strconv.Itoa(number))
	}
	return items
}
