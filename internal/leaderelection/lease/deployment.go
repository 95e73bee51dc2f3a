// SPDX-License-Identifier: Apache-2.0

package lease

import "strings"

const (
	// suffixLetters contains the characters of generated suffixes (k8s.io/apimachinery/pkg/util/rand).
	suffixLetters = "bcdfghjklmnpqrstvwxz2456789"
	// podSuffixLength is the length of the suffix that a ReplicaSet appends to its own name for the name of a Pod.
	// Names longer than maxPodName are truncated.
	podSuffixLength, maxPodName = 5, 63
	// minHashLength and maxHashLength limit the length of the Pod template's hash in the name of a ReplicaSet. The hash
	// encodes a 32-bit number. Shorter hashes are so rare that they are not recognized as such.
	minHashLength, maxHashLength = 6, 10
)

// FindDeployment derives the name of a Pod's Deployment from the Pod's name, DEPLOYMENT-HASH-SUFFIX; empty if the name
// has a different format.
func FindDeployment(pod string) string {
	if len(pod) >= maxPodName { // The name of the ReplicaSet may be truncated.
		return ""
	}
	replicaSet, suffix := cutLast(pod)
	deployment, hash := cutLast(replicaSet)
	if len(suffix) != podSuffixLength || len(hash) < minHashLength || len(hash) > maxHashLength || strings.Trim(suffix+hash, suffixLetters) != "" {
		return ""
	}
	return deployment
}

func cutLast(name string) (before, after string) {
	at := strings.LastIndex(name, "-")
	if at < 0 {
		return "", name
	}
	return name[:at], name[at+1:]
}
