// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

// sourceBuild is the version of a client that was built from its sources without a version.
const sourceBuild = "0.0.0-unknown-version"

// checkClientVersion rejects versions of the cf client that do not send the credentials of a kubeconfig. Other clients
// are accepted.
func checkClientVersion(userAgent string) error {
	text, isClient := strings.CutPrefix(userAgent, "cf/")
	text, _, _ = strings.Cut(text, " ")
	if !isClient || strings.HasPrefix(text, sourceBuild) {
		return nil
	}
	// Versions in any other format are accepted.
	if found, _ := version.ParseSemantic(text); found == nil || !found.LessThan(version.MustParseSemantic(handlers.MinClientVersion)) {
		return nil
	}
	return apierrors.NewInvalidRequest("expected version " + handlers.MinClientVersion + " of the cf client or a later version, because earlier versions cannot log in with a kubeconfig; found " +
		text + "; install that version or a later one")
}
