// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"k8s.io/utils/lru"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// computeURL is the URL of Compute Engine. Neither responses nor Secrets can change it.
const computeURL = "https://compute.googleapis.com/compute/v1/projects/"

// projectAccount is a service account with access to the instances of its project.
type projectAccount struct {
	client cloudrest.APIClient
	// name is a hash of all fields that identify the account. owner identifies the project among the accounts of all
	// clouds.
	name, owner string
	project     string
	secret      string
	// discardsLocalDisks reports whether a stop may lose the data on disks of the instances' hosts. If nil, Google
	// Cloud's default applies.
	discardsLocalDisks *bool
	starts             onebyone.PendingStarts
	// groups caches the groups of instances, by instance ID.
	groups *lru.Cache
	quotas *cloudrest.QuotaCache
}

// accountOf returns the account of the target's service account. If the Secret changes, a new projectAccount is
// created.
func (a *Actuator) accountOf(t actuator.Target) (*projectAccount, error) {
	s, err := readCredentials(t.Credentials)
	if err != nil {
		return nil, err
	}
	// Clusters with different settings for local disks must not share a projectAccount.
	disks := ""
	if t.DiscardLocalDisks != nil {
		disks = strconv.FormatBool(*t.DiscardLocalDisks)
	}
	fields := []string{s.ProjectID, s.ClientEmail, s.PrivateKeyID, s.PrivateKey, disks}
	return a.accounts.GetOrBuild(t.Namespace, fields, func(name string) (*projectAccount, error) {
		tokens := cloudrest.NewTokenCache(a.options.Clock, func(ctx context.Context) (cloudrest.AccessToken, error) { return a.fetchToken(ctx, s) })
		return &projectAccount{
			client: cloudrest.APIClient{HTTP: a.options.HTTPClient, Tokens: tokens, Timeout: a.options.CallTimeout},
			name:   name, owner: "gcp/" + s.ProjectID, project: s.ProjectID, secret: s.PrivateKey, discardsLocalDisks: t.DiscardLocalDisks, starts: onebyone.NewPendingStarts(a.options.Clock),
			groups: lru.New(maxMachines), quotas: cloudrest.NewQuotaCache(a.options.Clock),
		}, nil
	})
}

// Name implements cloudrest.OneByOneAccount.
func (c *projectAccount) Name() string { return c.name }

// computeRequest is one call to Compute Engine.
type computeRequest struct {
	// operation is the name in messages.
	operation, method string
	// path is relative to the project.
	path  string
	query url.Values
	body  any
}

// call makes one call, and converts its error to one for users.
func (c *projectAccount) call(ctx context.Context, r computeRequest, result any) error {
	address := computeURL + url.PathEscape(c.project) + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	err := c.client.Call(ctx, r.method, address, r.body, result)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return c.explainError(r.operation, err)
}

// listTimeout limits the time for all pages of a listing.
func (c *projectAccount) listTimeout() time.Duration { return listTimeoutFactor * c.client.Timeout }
