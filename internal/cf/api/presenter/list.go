// SPDX-License-Identifier: Apache-2.0

// Package presenter turns objects into the JSON of CF v3, by pure functions.
package presenter

import (
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// Link is the address of a resource or an action.
type Link struct {
	HRef   string `json:"href"`
	Method string `json:"method,omitempty"`
}

// Links are addresses by name.
type Links map[string]Link

// ListResponse is one page of a list.
type ListResponse[T any] struct {
	Pagination PaginationData `json:"pagination"`
	Resources  []T            `json:"resources"`
	// Included are resources that these refer to, if the client asks for them.
	Included any `json:"included,omitempty"`
}

// PaginationData describes the place of a page in its list.
type PaginationData struct {
	TotalResults int   `json:"total_results"`
	TotalPages   int   `json:"total_pages"`
	First        Link  `json:"first"`
	Last         Link  `json:"last"`
	Next         *Link `json:"next"`
	Previous     *Link `json:"previous"`
}

// ForList returns one page of a list, each item as present makes it. requestURL is what links to other pages are made from.
func ForList[T, V any](requestURL url.URL, page payloads.PageQuery, all []T, present func(T) V) ListResponse[V] {
	// CF counts an empty list as one page.
	pages := max(1, (len(all)+page.PerPage-1)/page.PerPage)
	link := func(n int) Link {
		q := requestURL.Query()
		q.Set("page", strconv.Itoa(n))
		q.Set("per_page", strconv.Itoa(page.PerPage))
		to := requestURL
		to.RawQuery = q.Encode()
		return Link{HRef: to.String()}
	}
	list := ListResponse[V]{Pagination: PaginationData{TotalResults: len(all), TotalPages: pages, First: link(1), Last: link(pages)}}
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
		list.Resources = append(list.Resources, present(one))
	}
	return list
}

// Resource holds the fields that every resource begins with.
type Resource struct {
	GUID      string `json:"guid"`
	CreatedAt string `json:"created_at"`
	UpdatedAt string `json:"updated_at"`
}

// newResource returns the fields of a resource that never changes.
func newResource(guid string, created time.Time) Resource {
	return Resource{GUID: guid, CreatedAt: FormatTime(created), UpdatedAt: FormatTime(created)}
}

// newUpdatedResource returns the fields of an object that was last changed when its revision began.
func newUpdatedResource(o metav1.Object) Resource {
	r := newResource(o.GetName(), o.GetCreationTimestamp().Time)
	if revised, err := time.Parse(time.RFC3339, o.GetAnnotations()[torporv1alpha1.RevisedAtAnnotation]); err == nil && revised.After(o.GetCreationTimestamp().Time) {
		r.UpdatedAt = FormatTime(revised)
	}
	return r
}

// EmptyMetadata is that of resources which keep no labels and annotations of clients.
type EmptyMetadata struct {
	Labels      struct{} `json:"labels"`
	Annotations struct{} `json:"annotations"`
}

// Metadata are the labels and annotations of clients.
type Metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func metadataOf(labels, annotations map[string]string) Metadata {
	return Metadata{Labels: payloads.OwnKeys(labels), Annotations: payloads.OwnKeys(annotations)}
}

// Relationship is a reference to one resource, or to none.
type Relationship struct {
	Data *Reference `json:"data"`
}

// Reference names a resource by its GUID.
type Reference struct {
	GUID string `json:"guid"`
}

// RelationshipTo returns a relationship to a resource; to none if guid is empty.
func RelationshipTo(guid string) Relationship {
	if guid == "" {
		return Relationship{}
	}
	return Relationship{Data: &Reference{GUID: guid}}
}

// FormatTime returns a time as CF writes it.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
