// SPDX-License-Identifier: Apache-2.0

package kpack

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultBuilder is the builder of Images, as KIND/NAME.
const DefaultBuilder = clusterBuilderKind + "/default"

// DefaultServiceAccount is the ServiceAccount of a space that Images name. kpack uses the same one by default.
const DefaultServiceAccount = "default"

const (
	clusterBuilderKind = "ClusterBuilder"
	builderKind        = "Builder"
)

// Settings define the Images of all CFBuilds.
type Settings struct {
	// Repository is the prefix of the repositories of built images; if it is empty, kpack is not used.
	Repository string
	// BuilderKind is ClusterBuilder, or Builder for one in each space; Builder is its name.
	BuilderKind, Builder string
	// ServiceAccount is the ServiceAccount of the space whose Secrets kpack uses.
	ServiceAccount string
	// PullSecret is the Secret of the space that instances pull built images with; empty if they need none.
	PullSecret string
}

// IsEnabled reports whether kpack builds CFBuilds.
func (s Settings) IsEnabled() bool { return s.Repository != "" }

// ParseSettings reads the flags --kpack-repository, --kpack-builder, --kpack-service-account and --kpack-pull-secret.
// The others have no effect without a repository.
func ParseSettings(repository, builder, serviceAccount, pullSecret string) (Settings, error) {
	if repository == "" {
		return Settings{}, nil
	}
	s := Settings{Repository: repository, ServiceAccount: serviceAccount, PullSecret: pullSecret}
	var errs []error
	// A host or its port, and folders below it. The tag is that of each build.
	prefix := regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	if !prefix.MatchString(repository) {
		errs = append(errs, fmt.Errorf("--kpack-repository: expected a prefix such as registry.example.com/droplets, "+
			"without a scheme or a tag, found %q", repository))
	}
	var hasName bool
	s.BuilderKind, s.Builder, hasName = strings.Cut(builder, "/")
	if !hasName || s.BuilderKind != clusterBuilderKind && s.BuilderKind != builderKind || !isName(s.Builder) {
		errs = append(errs, fmt.Errorf("--kpack-builder: expected %s/NAME or %s/NAME, found %q",
			clusterBuilderKind, builderKind, builder))
	}
	if !isName(serviceAccount) {
		errs = append(errs, fmt.Errorf("--kpack-service-account: expected the name of a ServiceAccount, found %q",
			serviceAccount))
	}
	if pullSecret != "" && !isName(pullSecret) {
		errs = append(errs, fmt.Errorf("--kpack-pull-secret: expected the name of a Secret, found %q", pullSecret))
	}
	return s, errors.Join(errs...)
}

func isName(text string) bool { return len(validation.IsDNS1123Subdomain(text)) == 0 }
