// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// sessionRenewal is the remaining lifetime at which a session is replaced. It exceeds the duration of any
	// observation with all its calls.
	sessionRenewal = 5 * time.Minute
	// maxSessionNameBytes is the maximum length that STS accepts.
	maxSessionNameBytes = 64
)

// AssumableRole is an entry of --aws-assume-roles: roles that may be assumed for the clusters of a namespace.
type AssumableRole struct{ namespace, pattern string }

// ParseAssumableRoles parses NAMESPACE=ARN. The namespace may be *. The ARN may be a pattern with a * that does not
// match a slash.
func ParseAssumableRoles(list []string) ([]AssumableRole, error) {
	var roles []AssumableRole
	for _, entry := range list {
		namespace, pattern, ok := strings.Cut(entry, "=")
		_, err := path.Match(pattern, "")
		if !ok || err != nil || namespace == "" || !strings.HasPrefix(pattern, "arn:") {
			return nil, fmt.Errorf("expected NAMESPACE=ARN such as team-a=arn:aws:iam::123456789012:role/torpor-*, found %q", entry)
		}
		roles = append(roles, AssumableRole{namespace, pattern})
	}
	return roles, nil
}

func (r AssumableRole) includes(role actuator.Role) bool {
	matches, err := path.Match(r.pattern, role.Name)
	return err == nil && matches && (r.namespace == "*" || r.namespace == role.Namespace)
}

// clientForRole returns the client that acts as a role. The author of a ClusterDeployment chooses the role, and roles
// of many tenants may trust the manager's identity. An administrator therefore lists the namespaces for which a role
// may be assumed.
func (a *Actuator) clientForRole(ctx context.Context, role actuator.Role, region string) (*accountClient, error) {
	isListed := false
	for _, r := range a.options.AssumableRoles {
		isListed = isListed || r.includes(role)
	}
	if !isListed {
		return nil, actuator.Errorf(actuator.Other, "spec.platform.aws.credentialsAssumeRole: expected a role that --aws-assume-roles lists for the namespace %s, found %.200q: "+
			"ask the administrator to list it, or use credentialsSecretRef", role.Namespace, role.Name)
	}
	return a.clients.GetOrBuild(role.Namespace, []string{"role", role.Name, role.ExternalID, role.Namespace, region}, func(name string) (*accountClient, error) {
		session, err := a.newSession(ctx, role, region)
		if err != nil {
			return nil, err
		}
		c, err := a.newClient(ctx, session, region, a.options.Endpoint, name)
		if err != nil {
			return nil, err
		}
		c.session = session
		return c, nil
	})
}

// newSession returns credentials that are fetched on demand, and renewed before they expire.
func (a *Actuator) newSession(ctx context.Context, role actuator.Role, region string) (*awssdk.CredentialsCache, error) {
	if a.identity == nil {
		// The sources are the environment, a web identity such as that of a ServiceAccount, and the role of a
		// container or an instance.
		own, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
		if err != nil {
			return nil, actuator.Errorf(actuator.Other, "the manager's own AWS configuration cannot be read: correct its environment")
		}
		a.identity = &own
	}
	api := sts.NewFromConfig(*a.identity, func(o *sts.Options) { o.Region, o.HTTPClient = region, a.options.HTTPClient })
	provider := stscreds.NewAssumeRoleProvider(api, role.Name, func(o *stscreds.AssumeRoleOptions) {
		name := "torpor-" + role.Namespace
		o.RoleSessionName = name[:min(len(name), maxSessionNameBytes)]
		if role.ExternalID != "" {
			o.ExternalID = &role.ExternalID
		}
	})
	explaining := awssdk.CredentialsProviderFunc(func(ctx context.Context) (awssdk.Credentials, error) {
		keys, err := provider.Retrieve(ctx)
		if err != nil {
			return keys, &assumeRoleError{role.Name, err}
		}
		return keys, nil
	})
	return awssdk.NewCredentialsCache(explaining, func(o *awssdk.CredentialsCacheOptions) { o.ExpiryWindow = sessionRenewal }), nil
}

// assumeRoleError reports that a role could not be assumed. No call to EC2 was made.
type assumeRoleError struct {
	role  string
	cause error
}

// Error implements error.
func (e *assumeRoleError) Error() string { return fmt.Sprintf("assume %s: %v", e.role, e.cause) }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *assumeRoleError) Unwrap() error { return e.cause }

func (e *assumeRoleError) explain() error {
	api, ok := asAPIError(e.cause)
	if !ok {
		return actuator.Errorf(actuator.Unreachable, "AssumeRole: the manager cannot assume the role %s: STS does not respond, or the manager has no AWS credentials; see docs/spec/clusterdeployment.md", e.role)
	}
	return actuator.Errorf(classOf(api.ErrorCode(), statusOf(e.cause)), "AssumeRole: %s: %s", api.ErrorCode(), scrubMessage(api.ErrorMessage(), nil))
}
