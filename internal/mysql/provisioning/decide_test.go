// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func TestDecide(t *testing.T) {
	named := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
	}
	applied := func(name string) ObjectState {
		hash := HashContent(named(name))
		return ObjectState{Desired: named(name), AppliedHash: hash, ResultHash: hash, LiveHash: hash}
	}
	old := PodState{Exists: true, Ready: true, ReadyFor: SettleTime, Outdated: true}
	for name, row := range map[string]struct {
		change func(*Observed)
		want   string
	}{
		"a Pod is replaced when every object is as desired": {func(*Observed) {}, "roll out"},
		"a stop of reconciliation comes before all":         {func(o *Observed) { stopReconciliation(o.Cluster); o.MissingPasswordKeys = []string{"A"} }, ""},
		"missing passwords come before objects":             {func(o *Observed) { o.MissingPasswordKeys = []string{"A"}; o.Objects[0].LiveHash = ContentHash{} }, "keys A"},
		"an object that was never applied is applied":       {func(o *Observed) { o.Objects[0].AppliedHash = ContentHash{} }, "apply used"},
		"an object that was changed or deleted is applied":  {func(o *Observed) { o.Objects[0].LiveHash = ContentHash{} }, "apply used"},
		"all objects that differ are applied in one pass": {func(o *Observed) {
			o.Objects = []ObjectState{{Desired: named("a")}, applied("b"), {Desired: named("c")}}
		}, "apply a, apply c"},
		"a configuration that nothing uses is pruned": {func(o *Observed) { o.ConfigMaps = append(o.ConfigMaps, named("old")) }, "prune old"},
		"a configuration that a Pod uses stays": {func(o *Observed) {
			o.ConfigMaps, o.UsedConfigMaps = append(o.ConfigMaps, named("old")), []string{"old"}
		}, "roll out"},
		"a configuration stays until the new template is known": {func(o *Observed) { o.ConfigMaps, o.Rollout.RevisionKnown = append(o.ConfigMaps, named("old")), false }, ""},
		"nothing is done when something could not be read":      {func(o *Observed) { o.Err = errors.New("x"); o.Objects[0].LiveHash = ContentHash{} }, ""},
		"nothing is done before a user has mended a problem":    {func(o *Observed) { o.Problems = []string{"x"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{
				Cluster: &mocov1beta2.MySQLCluster{}, Desired: DesiredObjects{ConfigMapName: "used"}, Objects: []ObjectState{applied("used")},
				ConfigMaps: []*unstructured.Unstructured{named("used")},
				Rollout:    ObservedRollout{RevisionKnown: true, Pods: []PodState{old}, Healthy: true},
			}
			row.change(&seen)
			if got := effectsOf(Decide(seen)); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}

func stopReconciliation(c *mocov1beta2.MySQLCluster) {
	c.Annotations = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}
}

// effectsOf returns what is carried out of a change set.
func effectsOf(changes ChangeSet) string {
	var effects []string
	switch {
	case !changes.IsNotEmpty():
	case len(changes.PasswordKeys) > 0:
		effects = append(effects, "keys "+strings.Join(changes.PasswordKeys, ", "))
	case changes.RollsOut():
		effects = append(effects, "roll out")
	default:
		for _, o := range changes.Apply {
			effects = append(effects, "apply "+o.GetName())
		}
		for _, o := range changes.Prune {
			effects = append(effects, "prune "+o.GetName())
		}
	}
	return strings.Join(effects, ", ")
}

func TestContentHashIgnoresBookkeeping(t *testing.T) {
	written := map[string]any{"kind": "Service", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"x": "y"}}
	read := map[string]any{
		"kind": "Service", "metadata": map[string]any{"name": "a", "resourceVersion": "7", "generation": int64(2)},
		"spec": map[string]any{"x": "y"}, "status": map[string]any{"z": "z"},
	}
	if HashContent(&unstructured.Unstructured{Object: written}) != HashContent(&unstructured.Unstructured{Object: read}) {
		t.Error("expected one hash for an object as it was written and as it was read, found two")
	}
}
