// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/machinenames"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// testRights is the call that returns which of the given rights the caller has.
const testRights = "instances.testIamPermissions"

// maxZoneQuestions limits the number of checks for a large batch, because all checks are repeated if one is throttled.
// One check for each cluster and for each zone is made even beyond the limit.
const maxZoneQuestions = 500

// RequireStopRights implements rest.OneByOneAccount. It checks the service account's rights on one machine of each
// cluster in each zone, because a cluster that is stopped without the right to start it could not resume. Rights are
// granted for projects and folders, and by conditions on names and zones, but hardly ever for single machines.
func (c *projectAccount) RequireStopRights(ctx context.Context, ids []string) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(onebyone.ParallelCalls)
	for _, m := range chooseAsked(ids) {
		work.Go(func() error { return c.requireRightsFor(ctx, m) })
	}
	return work.Wait()
}

// chooseAsked returns the machines on which the rights are checked: about one per cluster and zone.
func chooseAsked(ids []string) []machineName {
	var chosen, others []machineName
	isAsked := map[machineName]bool{}
	for _, id := range ids {
		m, ok := parseMachineName(id)
		if !ok {
			continue
		}
		zone, cluster := machineName{zone: m.zone}, machineName{name: clusterOf(m.name)}
		both := machineName{m.zone, cluster.name}
		switch {
		case isAsked[both]:
			continue
		case isAsked[zone] && isAsked[cluster]:
			others = append(others, m)
		default:
			chosen = append(chosen, m)
		}
		isAsked[zone], isAsked[cluster], isAsked[both] = true, true, true
	}
	return append(chosen, others[:min(len(others), max(maxZoneQuestions-len(chosen), 0))]...)
}

// clusterOf returns the infraID in a machine's name. If the name does not contain an infraID, it returns the prefix
// that the machines of one pool share.
func clusterOf(name string) string {
	if infraID := machinenames.FindInfraID(name); infraID != "" {
		return infraID
	}
	return name[:max(strings.LastIndexByte(name, '-'), 0)]
}

func (c *projectAccount) requireRightsFor(ctx context.Context, m machineName) error {
	needed := []string{"compute.instances.stop", "compute.instances.start"}
	var granted struct {
		Permissions []string `json:"permissions"`
	}
	err := c.call(ctx, computeRequest{
		operation: testRights, method: http.MethodPost, path: m.path() + "/testIamPermissions", body: map[string]any{"permissions": needed},
	}, &granted)
	if class := actuator.ClassOf(err); err != nil && (class == actuator.PermissionDenied || class == actuator.NotFound) {
		// If the rights cannot be checked, the stop is tried. The stop also detects a missing instance.
		return nil
	}
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(needed, func(right string) bool { return slices.Contains(granted.Permissions, right) })
	if len(missing) == 0 {
		return nil
	}
	return actuator.Errorf(actuator.PermissionDenied, "expected the service account to have %s, found that no role grants it; no machine is stopped without the rights to stop and to start all of them",
		strings.Join(missing, " and "))
}
