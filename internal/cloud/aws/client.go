// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/smithy-go/middleware"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// accountClient accesses an account's machines in a region. Each client has a separate retry quota, so a throttled
// account does not use up the attempts of other accounts. All clients share one pool of connections.
type accountClient struct {
	api *ec2.Client
	// scaling calls EC2 Auto Scaling with the same credentials.
	scaling *autoscaling.Client
	// eks calls EKS with the same credentials.
	eks          *eks.Client
	region, host string
	// endpoint is the host with its port.
	endpoint string
	// isAWS reports whether the endpoint is one of EC2's own for the region.
	isAWS bool
	// isTrusted reports whether the endpoint's messages may be shown to users.
	isTrusted bool
	secrets   []string
	timeout   time.Duration
	// session is the session of a role. It is nil if the keys of a Secret are used.
	session *awssdk.CredentialsCache
	// account is the client's public name: a hash of all fields that identify it.
	account string
}

// clientFor returns the client for the target's account, region and endpoint. If the Secret changes, a new client is
// created.
func (a *Actuator) clientFor(ctx context.Context, t actuator.Target) (*accountClient, error) {
	if t.Region == "" || strings.Trim(t.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, actuator.Errorf(actuator.Other, "the region must be one such as us-east-1, found %q: set spec.platform.aws.region", t.Region)
	}
	if t.Role != nil {
		return a.clientForRole(ctx, *t.Role, t.Region)
	}
	keys, err := readCredentials(t.Credentials)
	if err != nil {
		return nil, err
	}
	endpoint := keys.endpointOrDefault(a.options.Endpoint)
	// The first field distinguishes keys from roles. Without it, a tenant could write a Secret that is mistaken for
	// another tenant's role.
	fields := []string{"keys", keys.id, keys.secret, keys.token, t.Region, endpoint}
	return a.clients.GetOrBuild(t.Namespace, fields, func(name string) (*accountClient, error) {
		static := awssdk.Credentials{AccessKeyID: keys.id, SecretAccessKey: keys.secret, SessionToken: keys.token, Source: "Secret"}
		c, err := a.newClient(ctx, awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) { return static, nil }), t.Region, endpoint, name)
		if err == nil {
			c.secrets = keys.secretValues()
		}
		if err != nil || endpoint == a.options.Endpoint {
			return c, err
		}
		return c, a.checkSecretEndpoint(c)
	})
}

func (a *Actuator) newClient(ctx context.Context, credentials awssdk.CredentialsProvider, region, endpoint, account string) (*accountClient, error) {
	where := ec2.EndpointParameters{Region: &region}
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Hostname() == "" || u.User != nil {
			return nil, actuator.Errorf(actuator.Other, "the endpoint must be a URL such as https://ec2.us-east-1.amazonaws.com: correct endpoint_url in the credentials Secret, or AWS_ENDPOINT_URL of the manager")
		}
		where.Endpoint = &endpoint
	}
	resolved, err := ec2.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, where)
	if err != nil {
		return nil, actuator.Errorf(actuator.Other, "EC2 has no endpoint in region %s: correct spec.platform.aws.region", region)
	}
	userAgent := []func(*middleware.Stack) error{awsmiddleware.AddUserAgentKeyValue("torpor", buildinfo.ReadVersion().Version)}
	return &accountClient{
		api: ec2.New(ec2.Options{
			Region: region, BaseEndpoint: where.Endpoint, HTTPClient: a.options.HTTPClient, Retryer: a.options.newRetryer(),
			APIOptions: userAgent, Credentials: credentials,
		}),
		scaling: autoscaling.New(autoscaling.Options{
			Region: region, BaseEndpoint: where.Endpoint, HTTPClient: a.options.HTTPClient, Retryer: a.options.newRetryer(),
			APIOptions: userAgent, Credentials: credentials,
		}),
		eks: eks.New(eks.Options{
			Region: region, BaseEndpoint: where.Endpoint, HTTPClient: smallAnswers{a.options.HTTPClient}, Retryer: a.options.newRetryer(),
			APIOptions: userAgent, Credentials: credentials,
		}),
		account: account, region: region, host: resolved.URI.Hostname(), endpoint: resolved.URI.Host, isAWS: isOwnEndpoint(ctx, region, &resolved.URI),
		isTrusted: true, timeout: a.options.CallTimeout,
	}, nil
}

// checkSecretEndpoint refuses an endpoint_url that is not allowed. A user who may write a Secret must not be able to
// reach or read servers in the manager's network.
func (a *Actuator) checkSecretEndpoint(c *accountClient) error {
	c.isTrusted = a.options.Endpoints.Includes(c.host) || c.isAWS
	if err := a.options.Endpoints.CheckHost(c.host); err != nil {
		return actuator.Errorf(actuator.Other, "endpoint_url in the credentials Secret: %s: %s", c.host, err)
	}
	if !c.isTrusted && !a.options.Endpoints.IsEmpty() {
		return actuator.Errorf(actuator.Other, "endpoint_url in the credentials Secret: expected EC2's own endpoint in region %s or one that --allow-endpoints lists, found %s: "+
			"correct it, or ask the administrator to list the endpoint", c.region, c.host)
	}
	return nil
}

// isOwnEndpoint reports whether an endpoint is one of EC2's own for a region. A suffix check is not enough, because
// machines, load balancers and functions of AWS customers also have names in AWS domains.
func isOwnEndpoint(ctx context.Context, region string, endpoint *url.URL) bool {
	for _, useFIPS := range []bool{false, true} {
		for _, useDualStack := range []bool{false, true} {
			own, err := ec2.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, ec2.EndpointParameters{Region: &region, UseFIPS: &useFIPS, UseDualStack: &useDualStack})
			if err == nil && endpoint.Scheme == own.URI.Scheme && strings.EqualFold(endpoint.Hostname(), own.URI.Hostname()) && slices.Contains([]string{"", "443"}, endpoint.Port()) {
				return true
			}
		}
	}
	return false
}

// newRetryer returns a retryer that repeats a call while the cloud throttles or does not respond.
func (o Options) newRetryer() *retry.Standard {
	// EC2 reports missing capacity with status 500, which the SDK would retry. The capacity does not change within
	// seconds.
	noCapacityIsFinal := retry.IsErrorRetryableFunc(func(err error) awssdk.Ternary {
		if api, ok := asAPIError(err); ok && classOf(api.ErrorCode(), 0) == actuator.NoCapacity {
			return awssdk.FalseTernary
		}
		return awssdk.UnknownTernary
	})
	return retry.NewStandard(func(s *retry.StandardOptions) {
		s.MaxAttempts, s.MaxBackoff = o.Attempts, 5*time.Second
		s.Retryables = slices.Insert(s.Retryables, 0, retry.IsErrorRetryable(noCapacityIsFinal))
	})
}

// callWithTimeout makes one API call, with all its attempts, within the client's timeout.
func (c *accountClient) callWithTimeout(ctx context.Context, operation string, do func(context.Context) error) error {
	return cloudrest.CallWithTimeout(ctx, c.timeout, do, func(err error) error {
		explained := c.explainError(operation, err)
		if c.session != nil && actuator.ClassOf(explained) == actuator.CredentialsInvalid {
			// A revoked session must not be used again, although it has not expired.
			c.session.Invalidate()
		}
		return explained
	})
}
