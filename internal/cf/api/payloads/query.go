// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	defaultPerPage = 50
	maxPerPage     = 5000
	maxPage        = 1_000_000
	maxBodyBytes   = 1 << 20
)

// PageQuery selects a page of a list.
type PageQuery struct {
	Number, PerPage int
	// OrderBy is a field name, with a leading dash for descending order. An empty value means the list's default order.
	OrderBy string
}

// ParsePage parses page, per_page and order_by.
func ParsePage(q url.Values) (PageQuery, error) {
	p := PageQuery{Number: 1, PerPage: defaultPerPage, OrderBy: q.Get("order_by")}
	for _, number := range []struct {
		key  string
		into *int
		most int
	}{{"page", &p.Number, maxPage}, {"per_page", &p.PerPage, maxPerPage}} {
		if !q.Has(number.key) {
			continue
		}
		found := q.Get(number.key)
		n, err := strconv.Atoi(found)
		if err != nil || n < 1 || n > number.most {
			return PageQuery{}, apierrors.NewMessageParseError(fmt.Sprintf("The query parameter is invalid: %s: expected a number from 1 to %d, found %q", number.key, number.most, found))
		}
		*number.into = n
	}
	if by := strings.TrimPrefix(p.OrderBy, "-"); by != "" && !slices.Contains(orderFields(), by) {
		return PageQuery{}, apierrors.NewMessageParseError("The query parameter is invalid: order_by: expected one of " + strings.Join(orderFields(), ", ") + ", optionally with a leading dash, found " + strconv.Quote(p.OrderBy))
	}
	return p, nil
}

// orderFields returns the fields that order_by may name. Only the list of apps is ordered by the named field.
func orderFields() []string { return []string{"name", "state", "created_at", "updated_at"} }

// ParseLabelSelector parses label_selector.
func ParseLabelSelector(q url.Values) (labels.Selector, error) {
	selector, err := labels.Parse(q.Get("label_selector"))
	if err != nil {
		return nil, apierrors.NewMessageParseError("The query parameter is invalid: label_selector: " + err.Error())
	}
	return selector, nil
}

// QueryFilter is a list of accepted values. A nil filter accepts every value.
type QueryFilter []string

// ParseFilter parses a comma-separated list.
func ParseFilter(q url.Values, key string) QueryFilter {
	if !q.Has(key) {
		return nil
	}
	// An empty parameter selects only items with an empty value, and an absent parameter selects all items.
	return strings.Split(q.Get(key), ",")
}

// Matches reports whether a value is selected.
func (f QueryFilter) Matches(value string) bool { return f == nil || slices.Contains(f, value) }

// DecodeJSON decodes a JSON body. It treats an empty body as {}.
func DecodeJSON(body io.Reader, into any) error {
	raw, err := readBody(body, maxBodyBytes)
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return err
	}
	return explainParseError(json.Unmarshal(raw, into))
}

// readBody reads a body of at most limit bytes.
func readBody(body io.Reader, limit int) ([]byte, error) {
	// One additional byte is read to detect a body above the limit.
	raw, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, apierrors.NewMessageParseError("Request invalid due to parse error: the body ended early")
	case len(raw) > limit:
		return nil, apierrors.NewMessageParseError("Request invalid due to parse error: expected a body of at most " + strconv.Itoa(limit>>10) + " KiB, found more; split the request")
	default:
		return raw, nil
	}
}

// explainParseError converts an error of encoding/json to an error with the field's name and its expected type.
func explainParseError(err error) error {
	var shape *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	// For valid JSON with an unexpected type, the status is 422 instead of 400.
	case errors.As(err, &shape) && shape.Field != "":
		return apierrors.NewUnprocessableEntity("expected " + jsonFieldPath(shape.Field) + " to be " + describeType(shape.Type) + ", found a " + shape.Value)
	case errors.As(err, &shape):
		return apierrors.NewUnprocessableEntity("expected an object, found a " + shape.Value)
	default:
		return apierrors.NewMessageParseError("Request invalid due to parse error: " + err.Error())
	}
}

// jsonFieldPath returns the JSON path of a field without the Go names of embedded structs.
func jsonFieldPath(path string) string {
	// encoding/json adds the Go names of embedded structs to the path, but the request does not contain them.
	parts := strings.Split(path, ".")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	return strings.Join(parts, ".")
}

// describeType returns the name of a Go type for an error message.
func describeType(t reflect.Type) string {
	words := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Int32: "a whole number", reflect.Int64: "a whole number", reflect.Slice: "a list",
	}
	return cmp.Or(words[t.Kind()], "an object")
}
