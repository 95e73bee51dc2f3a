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

// PageQuery is the part of a list that the client wants.
type PageQuery struct {
	Number, PerPage int
	// OrderBy is a field, with a dash before it to have the last first; empty means as CF has it.
	OrderBy string
}

// ParsePage reads page, per_page and order_by.
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
		return PageQuery{}, apierrors.NewMessageParseError("The query parameter is invalid: order_by: expected one of " + strings.Join(orderFields(), ", ") + ", perhaps with a dash before it, found " + strconv.Quote(p.OrderBy))
	}
	return p, nil
}

// orderFields returns the fields that order_by may name; a list without such a field ignores it.
func orderFields() []string { return []string{"name", "state", "created_at", "updated_at"} }

// ParseLabelSelector reads label_selector.
func ParseLabelSelector(q url.Values) (labels.Selector, error) {
	selector, err := labels.Parse(q.Get("label_selector"))
	if err != nil {
		return nil, apierrors.NewMessageParseError("The query parameter is invalid: label_selector: " + err.Error())
	}
	return selector, nil
}

// QueryFilter is a list of values of which one has to match. A nil filter matches every value.
type QueryFilter []string

// ParseFilter reads a list with commas.
func ParseFilter(q url.Values, key string) QueryFilter {
	if !q.Has(key) {
		return nil
	}
	// A parameter that is there but empty selects nothing, unlike one that is absent.
	return strings.Split(q.Get(key), ",")
}

// Matches reports whether a value is selected.
func (f QueryFilter) Matches(value string) bool { return f == nil || slices.Contains(f, value) }

// DecodeJSON reads a body of JSON; an empty one is as good as {}.
func DecodeJSON(body io.Reader, into any) error {
	raw, err := readBody(body, maxBodyBytes)
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return err
	}
	return explainParseError(json.Unmarshal(raw, into))
}

// readBody reads a body of a limited size.
func readBody(body io.Reader, limit int) ([]byte, error) {
	// One byte more than is allowed tells a body that is too large from one that just fits.
	raw, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, apierrors.NewMessageParseError("Request invalid due to parse error: the body ended early")
	case len(raw) > limit:
		return nil, apierrors.NewMessageParseError("Request invalid due to parse error: expected a body of at most " + strconv.Itoa(limit>>10) + " KiB, found more; send less at once")
	default:
		return raw, nil
	}
}

// explainParseError turns an error of encoding/json into one that names the field and what was expected of it.
func explainParseError(err error) error {
	var shape *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	// JSON of another shape than expected is not broken, so it is 422 and not 400.
	case errors.As(err, &shape) && shape.Field != "":
		return apierrors.NewUnprocessableEntity("expected " + jsonFieldPath(shape.Field) + " to be " + describeType(shape.Type) + ", found a " + shape.Value)
	case errors.As(err, &shape):
		return apierrors.NewUnprocessableEntity("expected an object, found a " + shape.Value)
	default:
		return apierrors.NewMessageParseError("Request invalid due to parse error: " + err.Error())
	}
}

// jsonFieldPath is the path of a field as people write it: parts that are named as Go names things are only in our code.
func jsonFieldPath(path string) string {
	// encoding/json names embedded structs too, by their Go names, which no client has written.
	parts := strings.Split(path, ".")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	return strings.Join(parts, ".")
}

// describeType returns a type of Go in the words of an error.
func describeType(t reflect.Type) string {
	words := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Int32: "a whole number", reflect.Int64: "a whole number", reflect.Slice: "a list",
	}
	return cmp.Or(words[t.Kind()], "an object")
}
