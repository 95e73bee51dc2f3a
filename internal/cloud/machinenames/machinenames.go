// SPDX-License-Identifier: Apache-2.0

// Package machinenames tells whose a machine is where nothing but its name does.
package machinenames

import "regexp"

// installerName is a name as OpenShift's installer, kubeadm and kind give them: what follows the infraID is a role, then a zone's letter or the number
// of a pool, then a number or the five letters and digits of Kubernetes, which spell no word. No part of that can be a role, so that a
// name is of one infraID.
var installerName = regexp.MustCompile(`^(.+)-(?:master|worker|infra|bootstrap|control-?plane)[0-9]*(?:-(?:[a-z]|[0-9]+))?(?:-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5}))?$`)

// generatedID is a name that begins with an infraID as the installer makes them, which ends with five random characters: no other infraID begins so,
// whatever follows.
var generatedID = regexp.MustCompile(`^(.+?-[bcdfghjklmnpqrstvwxz2456789]{5})-.`)

// FindInfraID returns the infraID in a machine's name; empty where the name does not tell. It knows no list of clusters on purpose: dev-2-worker-0 is
// no machine of dev, also while nobody asks for dev-2.
func FindInfraID(name string) string {
	for _, form := range []*regexp.Regexp{installerName, generatedID} {
		if parts := form.FindStringSubmatch(name); parts != nil {
			return parts[1]
		}
	}
	return ""
}
