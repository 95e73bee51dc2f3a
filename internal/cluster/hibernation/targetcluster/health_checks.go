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

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

const (
	// pauseValue is the value of the pause annotation that Torpor sets. OpenShift and Cluster API ignore the value.
	pauseValue = hivev1.MachineGroupsAnnotation
	// maxHealthChecks is the limit in the hibernation record.
	maxHealthChecks = 100
	// namespaceOfMachines is the only namespace in which OpenShift acts on MachineHealthChecks.
	namespaceOfMachines = "openshift-machine-api"
)

var errTooManyHealthChecks = errors.New("the cluster has more MachineHealthChecks than the hibernation record can contain")

// HealthCheck is a MachineHealthCheck as one poll observed it.
type HealthCheck struct {
	// Group represents the MachineHealthCheck in the hibernation record.
	Group actuator.Group
	// Path is the object's path.
	Path                 string
	UID, ResourceVersion string
}

// HealthCheckChange pauses or unpauses a MachineHealthCheck.
type HealthCheckChange struct {
	HealthCheck

	IsPause bool
}

// healthCheckKind is one API version of a kind of MachineHealthChecks.
type healthCheckKind struct {
	// api is the API version's path.
	api string
	// namespace contains the objects; empty means all namespaces.
	namespace string
	newGroup  func(namespace, name string, state hibernation.PauseState) actuator.Group
}

// healthCheckKinds returns the kinds, each in all its versions. The first served version is used.
func healthCheckKinds() [][]healthCheckKind {
	ofOpenShift := func(_, name string, state hibernation.PauseState) actuator.Group {
		return hibernation.NewHealthCheckGroup(name, state)
	}
	ofClusterAPI := hibernation.NewClusterAPIHealthCheckGroup
	return [][]healthCheckKind{
		{{"/apis/" + machineGroup + "/v1beta1", namespaceOfMachines, ofOpenShift}},
		{{"/apis/cluster.x-k8s.io/v1beta1", "", ofClusterAPI}, {"/apis/cluster.x-k8s.io/v1beta2", "", ofClusterAPI}},
	}
}

// pathOf returns the path of the objects in a namespace, or in all namespaces.
func (k healthCheckKind) pathOf(namespace string) string {
	if namespace == "" {
		return k.api + "/machinehealthchecks"
	}
	return k.api + "/namespaces/" + namespace + "/machinehealthchecks"
}

// PauseAttempt is the last attempt to change MachineHealthChecks; zero without an attempt.
type PauseAttempt struct {
	At      time.Time
	IsPause bool
	Err     error
}

// ListHealthChecks returns the MachineHealthChecks of OpenShift and of Cluster API.
func (c *ClusterClient) ListHealthChecks(ctx context.Context) ([]HealthCheck, error) {
	var found []HealthCheck
	for _, versions := range healthCheckKinds() {
		for _, kind := range versions {
			err := c.listItems(ctx, kind.pathOf(kind.namespace), func(item []byte) error {
				check, err := kind.read(item)
				if found = append(found, check); err == nil && len(found) > maxHealthChecks {
					return errTooManyHealthChecks
				}
				return err
			})
			if k8serrors.IsNotFound(err) { // A kind that is not served has no items.
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
			}
			break
		}
	}
	return found, nil
}

func (k healthCheckKind) read(item []byte) (HealthCheck, error) {
	var check struct {
		Metadata struct {
			objectMetadata

			Namespace   string            `json:"namespace"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(item, &check)
	m := check.Metadata
	if err != nil || !isNameOfPath(m.Name) || !isNameOfPath(m.Namespace) {
		return HealthCheck{}, errMalformed
	}
	state := hibernation.NotPaused
	if value, isPaused := m.Annotations[preflight.PausedAnnotation]; isPaused {
		state = hibernation.PausedByOther
		if value == pauseValue {
			state = hibernation.PausedByUs
		}
	}
	return HealthCheck{
		Group: k.newGroup(m.Namespace, m.Name, state), Path: k.pathOf(m.Namespace) + "/" + m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
	}, nil
}

// ChangeHealthCheck pauses or unpauses a MachineHealthCheck. It sends the observed resource version, so the API server
// rejects the change with a conflict if the MachineHealthCheck has changed in between.
func (c *ClusterClient) ChangeHealthCheck(ctx context.Context, change HealthCheckChange) error {
	var value any
	if change.IsPause {
		value = pauseValue
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": change.UID, "resourceVersion": change.ResourceVersion, "annotations": map[string]any{preflight.PausedAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("write the pause: %w", err)
	}
	if err := c.discardObject(ctx, c.rest.Patch(types.MergePatchType).AbsPath(change.Path).Body(patch)); err != nil {
		return fmt.Errorf("change the pause of %s: %w", change.Group.Name, err)
	}
	return nil
}

// ChangeHealthChecks pauses or unpauses MachineHealthChecks, and then polls the cluster. The new changes replace the
// previous ones. rest is the pause after a failed attempt.
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

// takePauses returns the changes that are due. It drops the result of the last poll, because the record must not be
// updated with the MachineHealthChecks from before the changes.
func (c *pooledCluster) takePauses(now time.Time) []HealthCheckChange {
	if len(c.toPause) == 0 || now.Before(c.pauseDue) {
		return nil
	}
	taken := c.toPause
	c.toPause, c.look = nil, nil
	return taken
}

// changeHealthChecks stops at the first error. A later pass retries the remaining changes.
func (j *lookJob) changeHealthChecks(ctx context.Context, client *ClusterClient, now time.Time) {
	for _, change := range j.toPause {
		j.paused = PauseAttempt{At: now, IsPause: change.IsPause, Err: ignoreDecided(client.ChangeHealthCheck(ctx, change))}
		if j.paused.Err != nil {
			return
		}
	}
}
