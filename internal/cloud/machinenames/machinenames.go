// SPDX-License-Identifier: Apache-2.0

// Package machinenames finds the cluster of a machine from the machine's name, for clouds that provide no other
// information about the cluster.
package machinenames

import "regexp"

// installerName matches names that OpenShift's installer, Cluster API and kind generate. The infraID is followed by a
// role, then optionally the letter of a zone or the number of a pool, then optionally a number or the five random
// characters of Kubernetes, which never form a word. No part of that suffix can be a role, so a name belongs to exactly
// one infraID.
var installerName = regexp.MustCompile(`^(.+)-(?:master|worker|infra|bootstrap|control-?plane)[0-9]*(?:-(?:[a-z]|[0-9]+))?(?:-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5}))?$`)

// generatedID matches names that begin with an infraID of OpenShift's installer. Such an infraID ends with five random
// characters, so no other infraID begins with it.
var generatedID = regexp.MustCompile(`^(.+?-[bcdfghjklmnpqrstvwxz2456789]{5})-.`)

// FindInfraID returns the infraID in a machine's name, or "" if the name does not show it. It deliberately does not
// use a list of clusters: dev-2-worker-0 is not a machine of dev, even while no cluster dev-2 is known.
func FindInfraID(name string) string {
	for _, form := range []*regexp.Regexp{installerName, generatedID} {
		if parts := form.FindStringSubmatch(name); parts != nil {
			return parts[1]
		}
	}
	return ""
}
