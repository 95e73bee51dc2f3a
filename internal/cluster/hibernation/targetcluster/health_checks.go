// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	stopcheck "github.com/torpor-dev/torpor/internal/stop/check"
)

const (
	healthChecksPath = "/apis/" + machineGroup + "/v1beta1/namespaces/openshift-machine-api/machinehealthchecks"
	// pauseValue is the value of the pause annotation that Torpor sets. OpenShift ignores the value.
	pauseValue = hivev1.MachineGroupsAnnotation
	// maxHealthChecks is the limit of the record of a hibernation.
	maxHealthChecks = 100
)

var errTooManyHealthChecks = errors.New("the cluster has more MachineHealthChecks than a record can hold")

// HealthCheck is an observed version of a MachineHealthCheck of OpenShift.
type HealthCheck struct {
	Name, UID, ResourceVersion string
	Pause                      hibernation.PauseState
}

// HealthCheckChange pauses a MachineHealthCheck, or ends the pause.
type HealthCheckChange struct {
	HealthCheck

	IsPause bool
}

// PauseAttempt is the last attempt to change MachineHealthChecks; zero if there was none.
type PauseAttempt struct {
	At      time.Time
	IsPause bool
	Err     error
}

// ListHealthChecks returns the MachineHealthChecks of an OpenShift cluster.
func (c *ClusterClient) ListHealthChecks(ctx context.Context) ([]HealthCheck, error) {
	var found []HealthCheck
	err := c.listItems(ctx, healthChecksPath, func(item []byte) error {
		var check struct {
			Metadata struct {
				objectMetadata

				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(item, &check); err != nil || !isNameOfPath(check.Metadata.Name) {
			return errMalformed
		}
		m := HealthCheck{Name: check.Metadata.Name, UID: check.Metadata.UID, ResourceVersion: check.Metadata.ResourceVersion, Pause: hibernation.NotPaused}
		if value, isPaused := check.Metadata.Annotations[stopcheck.PausedAnnotation]; isPaused {
			m.Pause = hibernation.PausedByOther
			if value == pauseValue {
				m.Pause = hibernation.PausedByUs
			}
		}
		if found = append(found, m); len(found) > maxHealthChecks {
			return errTooManyHealthChecks
		}
		return nil
	})
	if err != nil && !k8serrors.IsNotFound(err) { // A kind that is not served has no items.
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	return found, nil
}

// ChangeHealthCheck sends the observed resource version, so that the API server refuses with a conflict if the
// MachineHealthCheck has changed in between.
func (c *ClusterClient) ChangeHealthCheck(ctx context.Context, change HealthCheckChange) error {
	var value any
	if change.IsPause {
		value = pauseValue
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": change.UID, "resourceVersion": change.ResourceVersion, "annotations": map[string]any{stopcheck.PausedAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("write the pause: %w", err)
	}
	if err := c.discardObject(ctx, c.rest.Patch(types.MergePatchType).AbsPath(healthChecksPath, change.Name).Body(patch)); err != nil {
		return fmt.Errorf("change the pause of MachineHealthCheck %s: %w", change.Name, err)
	}
	return nil
}

// ChangeHealthChecks pauses MachineHealthChecks or ends their pauses, and then polls the cluster. It replaces the
// previous changes. After a failed attempt it rests.
func (p *Pool) ChangeHealthChecks(cluster types.NamespacedName, changes []HealthCheckChange, rest time.Duration) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	c := p.clusters.Get(cluster)
	if c == nil {
		return
	}
	if c.toPause = changes; len(changes) == 0 {
		return
	}
	c.pauseDue = p.Clock.Now()
	if next := c.paused.At.Add(rest); c.paused.Err != nil && next.After(c.pauseDue) {
		c.pauseDue = next
	}
	p.clusters.Ask(cluster, c.pauseDue)
}

// takePauses returns the changes that are due. A poll from before them must not decide about their record.
func (c *pooledCluster) takePauses(now time.Time) []HealthCheckChange {
	if len(c.toPause) == 0 || now.Before(c.pauseDue) {
		return nil
	}
	taken := c.toPause
	c.toPause, c.look = nil, nil
	return taken
}

// changeHealthChecks ends with the first error. A later pass tries the rest again.
func (j *lookJob) changeHealthChecks(ctx context.Context, client *ClusterClient, now time.Time) {
	for _, change := range j.toPause {
		j.paused = PauseAttempt{At: now, IsPause: change.IsPause, Err: ignoreDecided(client.ChangeHealthCheck(ctx, change))}
		if j.paused.Err != nil {
			return
		}
	}
}
