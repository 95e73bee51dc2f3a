// SPDX-License-Identifier: Apache-2.0

// Package presenter is what the API answers: pure functions from objects to the JSON of CF v3.
package presenter

import (
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// Link is a place.
type Link struct {
	HRef   string `json:"href"`
	Method string `json:"method,omitempty"`
}

// Links are places by name.
type Links map[string]Link

// List is a page of a list.
type List[T any] struct {
	Pagination Pagination `json:"pagination"`
	Resources  []T        `json:"resources"`
}

// Pagination is where a page is in its list.
type Pagination struct {
	TotalResults int   `json:"total_results"`
	TotalPages   int   `json:"total_pages"`
	First        Link  `json:"first"`
	Last         Link  `json:"last"`
	Next         *Link `json:"next"`
	Previous     *Link `json:"previous"`
}

// ForList is one page of all, each shown by show. at is the request's address.
func ForList[T, V any](at url.URL, page payloads.Page, all []T, show func(T) V) List[V] {
	pages := max(1, (len(all)+page.PerPage-1)/page.PerPage)
	link := func(n int) Link {
		q := at.Query()
		q.Set("page", strconv.Itoa(n))
		q.Set("per_page", strconv.Itoa(page.PerPage))
		to := at
		to.RawQuery = q.Encode()
		return Link{HRef: to.String()}
	}
	list := List[V]{Pagination: Pagination{TotalResults: len(all), TotalPages: pages, First: link(1), Last: link(pages)}}
	if page.Number < pages {
		list.Pagination.Next = new(link(page.Number + 1))
	}
	if page.Number > 1 {
		list.Pagination.Previous = new(link(min(page.Number-1, pages)))
	}
	from := min((page.Number-1)*page.PerPage, len(all))
	to := min(from+page.PerPage, len(all))
	list.Resources = make([]V, 0, to-from)
	for _, one := range all[from:to] {
		list.Resources = append(list.Resources, show(one))
	}
	return list
}

// Metadata is what clients may attach elsewhere; here it is empty.
type Metadata struct {
	Labels      struct{} `json:"labels"`
	Annotations struct{} `json:"annotations"`
}

// Relationship is a relationship.
type Relationship struct {
	Data *Reference `json:"data"`
}

// Reference is a reference.
type Reference struct {
	GUID string `json:"guid"`
}

// RelationshipTo is a relationship to an object; to none if guid is empty.
func RelationshipTo(guid string) Relationship {
	if guid == "" {
		return Relationship{}
	}
	return Relationship{Data: &Reference{GUID: guid}}
}

// FormatTime is a time as CF writes it.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// updatedAt is when an object was changed last, as far as it says so itself.
func updatedAt(o metav1.Object) string {
	at := o.GetCreationTimestamp().Time
	if revised, err := time.Parse(time.RFC3339, o.GetAnnotations()[torporv1alpha1.RevisedAtAnnotation]); err == nil && revised.After(at) {
		at = revised
	}
	return FormatTime(at)
}
