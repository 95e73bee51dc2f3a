// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// rightsVersion is the version of the API that lists rights.
const rightsVersion = "2022-04-01"

// rolePermission lists the actions that one role of the caller allows in a resource group.
type rolePermission struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

// RequireStopRights implements rest.OneByOneAccount. It checks the service principal's rights in the machines'
// groups, because a cluster that is stopped without the right to start it could not resume.
func (c *accountClient) RequireStopRights(ctx context.Context, ids []string) error {
	if c.mayNotReadScaleSets.Load() {
		return actuator.Errorf(actuator.PermissionDenied, "expected the service principal to have Microsoft.Compute/%s in the subscription, found that no role grants it; "+
			"no machine is stopped before it is known whether scale sets keep other machines of the cluster running", scaleSetRead)
	}
	groups := map[string]bool{}
	for _, id := range ids {
		if m, ok := parseMachineName(id); ok {
			groups[m.group] = true
		}
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(onebyone.ParallelCalls)
	for group := range groups {
		work.Go(func() error { return c.requireRightsInGroup(ctx, group) })
	}
	return work.Wait()
}

func (c *accountClient) requireRightsInGroup(ctx context.Context, group string) error {
	permissions, err := c.listPermissions(ctx, group)
	if class := actuator.ClassOf(err); err != nil && (class == actuator.PermissionDenied || class == actuator.NotFound) {
		// A service principal that has no permission to read its rights may still have the required rights. A missing
		// group is detected at the stop.
		return nil
	}
	if err != nil {
		return err
	}
	var missing []string
	for _, action := range []string{"Microsoft.Compute/" + deallocate + "/action", "Microsoft.Compute/" + start + "/action"} {
		if !allows(permissions, action) {
			missing = append(missing, action)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return actuator.Errorf(actuator.PermissionDenied, "expected the service principal to have %s in the resource group %s, found that no role grants it; no machine is stopped without the rights to stop and to start all of them",
		strings.Join(missing, " and "), group)
}

// listPermissions reads one page, which is enough for the roles in a group.
func (c *accountClient) listPermissions(ctx context.Context, group string) ([]rolePermission, error) {
	var answer struct {
		Value []rolePermission `json:"value"`
	}
	path := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Authorization/permissions", c.subscription, url.PathEscape(group))
	err := c.callWithTimeout(ctx, "permissions", func(ctx context.Context) error {
		request, err := runtime.NewRequest(ctx, http.MethodGet, runtime.JoinPaths(c.resource.Endpoint(), path))
		if err != nil {
			return err
		}
		request.Raw().URL.RawQuery = url.Values{"api-version": {rightsVersion}}.Encode()
		response, err := c.resource.Pipeline().Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if !runtime.HasStatusCode(response, http.StatusOK) {
			return runtime.NewResponseError(response)
		}
		return runtime.UnmarshalAsJSON(response, &answer)
	})
	return answer.Value, err
}

// allows reports whether one of the roles grants an action and does not exclude it.
func allows(permissions []rolePermission, action string) bool {
	for _, p := range permissions {
		if matchesAny(p.Actions, action) && !matchesAny(p.NotActions, action) {
			return true
		}
	}
	return false
}

// matchesAny reports whether one of the patterns matches an action. As in Azure, * matches any text, and case is
// ignored.
func matchesAny(patterns []string, action string) bool {
	for _, pattern := range patterns {
		expression := "(?i)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		if matches, err := regexp.MatchString(expression, action); err == nil && matches {
			return true
		}
	}
	return false
}
