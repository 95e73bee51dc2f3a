// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"maps"
	"net/url"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

const (
	// apiVersion is the date that selects the API's behavior. generation has only one valid value.
	apiVersion = "2025-08-26"
	generation = "2"
)

// regionAccount is an API key with access to a region's instances.
type regionAccount struct {
	client cloudrest.APIClient
	// name is a hash of all fields that identify the account.
	name   string
	region string
	secret string
	starts onebyone.PendingStarts
}

// accountOf returns the account of the target's API key and region. If the Secret changes, a new regionAccount is
// created.
func (a *Actuator) accountOf(t actuator.Target) (*regionAccount, error) {
	apiKey, err := readCredentials(t.Credentials)
	if err != nil {
		return nil, err
	}
	if err := checkRegion(t.Region); err != nil {
		return nil, err
	}
	return a.accounts.GetOrBuild(t.Namespace, []string{apiKey, t.Region}, func(name string) (*regionAccount, error) {
		tokens := cloudrest.NewTokenCache(a.options.Clock, func(ctx context.Context) (cloudrest.AccessToken, error) { return a.fetchToken(ctx, apiKey) })
		return &regionAccount{
			client: cloudrest.APIClient{HTTP: a.options.HTTPClient, Tokens: tokens, Timeout: a.options.CallTimeout},
			name:   name, region: t.Region, secret: apiKey, starts: onebyone.NewPendingStarts(a.options.Clock),
		}, nil
	})
}

// Name implements cloudrest.OneByOneAccount.
func (c *regionAccount) Name() string { return c.name }

// RequireStopRights implements cloudrest.OneByOneAccount. IBM Cloud does not report missing rights in advance.
func (*regionAccount) RequireStopRights(context.Context, []string) error { return nil }

// vpcRequest is one call to the API of virtual private clouds.
type vpcRequest struct {
	// operation is the name in messages.
	operation, method, path string
	query                   url.Values
	body                    any
}

// call makes one call, and converts its error to one for users.
func (c *regionAccount) call(ctx context.Context, r vpcRequest, result any) error {
	query := url.Values{"version": {apiVersion}, "generation": {generation}}
	maps.Copy(query, r.query)
	address := "https://" + c.region + ".iaas.cloud.ibm.com/v1" + r.path + "?" + query.Encode()
	err := c.client.Call(ctx, r.method, address, r.body, result)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return c.explainError(r.operation, err)
}
