// SPDX-License-Identifier: Apache-2.0

// Package presenter converts objects to CF v3 JSON with pure functions.
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

// Links maps names to links.
type Links map[string]Link

// ListResponse is one page of a list.
type ListResponse[T any] struct {
	Pagination PaginationData `json:"pagination"`
	Resources  []T            `json:"resources"`
	// Included holds referenced resources that the client requested.
	Included any `json:"included,omitempty"`
}

// PaginationData describes the position of a page in its list.
type PaginationData struct {
	TotalResults int   `json:"total_results"`
	TotalPages   int   `json:"total_pages"`
	First        Link  `json:"first"`
	Last         Link  `json:"last"`
	Next         *Link `json:"next"`
	Previous     *Link `json:"previous"`
}

// ForList returns a page of a list, and converts its items with present. The links to other pages are derived from
// requestURL.
func ForList[T, V any](requestURL url.URL, page payloads.PageQuery, all []T, present func(T) V) ListResponse[V] {
	// In CF, an empty list has one page.
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

// Resource holds the fields that all resources have.
type Resource struct {
	GUID      string `json:"guid"`
	CreatedAt string `json:"created_at"`
	UpdatedAt string `json:"updated_at"`
}

// newResource returns the common fields of a resource whose update time is not recorded.
func newResource(guid string, created time.Time) Resource {
	return Resource{GUID: guid, CreatedAt: FormatTime(created), UpdatedAt: FormatTime(created)}
}

// newUpdatedResource returns the common fields of an object. The update time is the start of an app's current revision,
// or else the creation time.
func newUpdatedResource(o metav1.Object) Resource {
	r := newResource(o.GetName(), o.GetCreationTimestamp().Time)
	if revised, err := time.Parse(time.RFC3339, o.GetAnnotations()[torporv1alpha1.RevisedAtAnnotation]); err == nil && revised.After(o.GetCreationTimestamp().Time) {
		r.UpdatedAt = FormatTime(revised)
	}
	return r
}

// EmptyMetadata is the metadata of resources that do not store client labels or annotations.
type EmptyMetadata struct {
	Labels      struct{} `json:"labels"`
	Annotations struct{} `json:"annotations"`
}

// Metadata holds the client's labels and annotations.
type Metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// metadataOf returns the metadata of an object without the labels and annotations of controllers.
func metadataOf(o metav1.Object) Metadata { return ownMetadata(o.GetLabels(), o.GetAnnotations()) }

func ownMetadata(labels, annotations map[string]string) Metadata {
	return Metadata{Labels: payloads.OwnKeys(labels), Annotations: payloads.OwnKeys(annotations)}
}

// Relationship is a reference to a resource. Its data is null if there is no resource.
type Relationship struct {
	Data *Reference `json:"data"`
}

// Reference identifies a resource by its GUID.
type Reference struct {
	GUID string `json:"guid"`
}

// RelationshipTo returns a relationship to the resource with a GUID. Its data is null if guid is empty.
func RelationshipTo(guid string) Relationship {
	if guid == "" {
		return Relationship{}
	}
	return Relationship{Data: &Reference{GUID: guid}}
}

// FormatTime formats a time as CF does.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
