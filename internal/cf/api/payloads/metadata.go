// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// maxAnnotation is the maximum length of an annotation, as in Cloud Controller.
const maxAnnotation = 5000

// Metadata holds the labels and annotations that a client sets. A nil value removes a label or annotation.
type Metadata struct {
	Labels      map[string]*string `json:"labels"`
	Annotations map[string]*string `json:"annotations"`
}

// MetadataUpdate is the body of a request that changes only labels and annotations.
type MetadataUpdate struct {
	Metadata *Metadata `json:"metadata"`
}

// IsEmpty reports whether there are neither labels nor annotations.
func (m *Metadata) IsEmpty() bool { return m == nil || len(m.Labels) == 0 && len(m.Annotations) == 0 }

// Validate rejects invalid labels and keys, long annotations, and keys that are reserved for controllers.
func (m *Metadata) Validate() error {
	if m == nil {
		return nil
	}
	for key, value := range m.Labels {
		if value != nil && len(validation.IsValidLabelValue(*value)) > 0 {
			return apierrors.NewUnprocessableEntity("expected a label of at most 63 letters, digits, dashes, underscores and dots, found " + strconv.Quote(*value) + " for " + key + "; use an annotation")
		}
	}
	for key, value := range m.Annotations {
		if value != nil && len(*value) > maxAnnotation {
			return apierrors.NewUnprocessableEntity("expected an annotation of at most " + strconv.Itoa(maxAnnotation) + " characters, found more for " + key + "; shorten it")
		}
	}
	for _, set := range []map[string]*string{m.Labels, m.Annotations} {
		for key := range set {
			if IsReservedKey(key) || len(validation.IsQualifiedName(key)) > 0 {
				return apierrors.NewUnprocessableEntity("expected a valid key without a reserved prefix, such as team or example.com/team, found " + strconv.Quote(key) + "; choose another key")
			}
		}
	}
	return nil
}

// IsReservedKey reports whether the key of a label or an annotation is reserved for controllers. Clients cannot set
// such keys, and OwnKeys omits them.
func IsReservedKey(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	for _, domain := range []string{"cloudfoundry.org", "torpor.dev", "kubernetes.io", "k8s.io"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}
	return false
}

// OwnKeys returns the labels or annotations that are visible to clients.
func OwnKeys(all map[string]string) map[string]string {
	own := map[string]string{}
	for key, value := range all {
		if !IsReservedKey(key) {
			own[key] = value
		}
	}
	return own
}
