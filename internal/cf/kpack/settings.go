// SPDX-License-Identifier: Apache-2.0

package kpack

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultBuilder is the default builder of Images, as KIND/NAME.
const DefaultBuilder = clusterBuilderKind + "/default"

// DefaultServiceAccount is the default name of the ServiceAccount of Images, which is in the space. kpack has the same
// default.
const DefaultServiceAccount = "default"

const (
	clusterBuilderKind = "ClusterBuilder"
	builderKind        = "Builder"
)

// Settings apply to the Images of all CFBuilds.
type Settings struct {
	// Repository is the prefix of the repositories of built images. If it is empty, kpack is not used.
	Repository string
	// BuilderKind is ClusterBuilder, or Builder if each space has its own builder. Builder is the builder's name.
	BuilderKind, Builder string
	// ServiceAccount is the name of the ServiceAccount in each space whose Secrets kpack uses.
	ServiceAccount string
	// PullSecret is the name of the Secret in each space with which built images are pulled. It is empty if none is
	// needed.
	PullSecret string
}

// IsEnabled reports whether kpack builds CFBuilds.
func (s Settings) IsEnabled() bool { return s.Repository != "" }

// ParseSettings reads the flags --kpack-repository, --kpack-builder, --kpack-service-account and --kpack-pull-secret.
// Without a repository, the other flags have no effect.
func ParseSettings(repository, builder, serviceAccount, pullSecret string) (Settings, error) {
	if repository == "" {
		return Settings{}, nil
	}
	s := Settings{Repository: repository, ServiceAccount: serviceAccount, PullSecret: pullSecret}
	var errs []error
	// The prefix is a host with an optional port, followed by folders. BuildImage appends the space and a tag.
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
