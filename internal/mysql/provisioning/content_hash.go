// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ContentHash is a hash of what people and controllers want of an object.
type ContentHash [sha256.Size]byte

// HashContent leaves out what controllers report and the API server's own bookkeeping.
func HashContent(u *unstructured.Unstructured) ContentHash {
	c := u.DeepCopy()
	unstructured.RemoveNestedField(c.Object, "status")
	for _, bookkeeping := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(c.Object, "metadata", bookkeeping)
	}
	text, err := json.Marshal(c.Object)
	if err != nil {
		return sha256.Sum256([]byte(fmt.Sprint(c.Object))) // JSON cannot hold it; a map is printed in order.
	}
	return sha256.Sum256(text)
}
