// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func TestUnsupported(t *testing.T) {
	for name, row := range map[string]struct {
		spec mocov1beta2.MySQLClusterSpec
		want []string
	}{
		"nothing is set": {},
		"all that Torpor acts on": {
			spec: mocov1beta2.MySQLClusterSpec{
				Replicas: 3, MySQLConfigMapName: new("mycnf"), ServerIDBase: 1, MaxDelaySeconds: new(60), StartupWaitSeconds: 3600, Offline: true,
				PodTemplate: mocov1beta2.PodTemplate{
					ObjectMeta:          mocov1beta2.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:                mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: mocov1beta2.MysqldContainer}}},
					OverwriteContainers: []mocov1beta2.OverwriteContainer{{Name: "moco-init"}},
				},
				VolumeClaimTemplates:   []mocov1beta2.VolumeClaimTemplate{{ObjectMeta: mocov1beta2.ObjectMeta{Name: mocov1beta2.DataClaim}}},
				PrimaryServiceTemplate: &mocov1beta2.ServiceTemplate{}, ReplicaServiceTemplate: &mocov1beta2.ServiceTemplate{},
				BackupPolicyName: new("daily"), Restore: &mocov1beta2.Restore{},
			},
		},
		"a wish that is always fulfilled": {spec: mocov1beta2.MySQLClusterSpec{DisableSlowQueryLogContainer: true}},
		"empty names": {
			spec: mocov1beta2.MySQLClusterSpec{ReplicationSourceSecretName: new(""), BackupPolicyName: new(""), SlowQueryLogConfigTmpl: new("")},
		},
		"the agent":           {mocov1beta2.MySQLClusterSpec{AgentUseLocalhost: true}, []string{"spec.agentUseLocalhost"}},
		"the exporter":        {mocov1beta2.MySQLClusterSpec{Collectors: []string{"x"}}, []string{"spec.collectors"}},
		"time zones":          {mocov1beta2.MySQLClusterSpec{InitializeTimezoneData: true}, []string{"spec.initializeTimezoneData"}},
		"log rotation":        {mocov1beta2.MySQLClusterSpec{LogRotationSchedule: "@daily"}, []string{"spec.logRotationSchedule"}},
		"log rotation size":   {mocov1beta2.MySQLClusterSpec{LogRotationSize: 1}, []string{"spec.logRotationSize"}},
		"the guard of a Pod":  {mocov1beta2.MySQLClusterSpec{MaxDelaySecondsForPodDeletion: 1}, []string{"spec.maxDelaySecondsForPodDeletion"}},
		"a source outside":    {mocov1beta2.MySQLClusterSpec{ReplicationSourceSecretName: new("donor")}, []string{"spec.replicationSourceSecretName"}},
		"the slow query log":  {mocov1beta2.MySQLClusterSpec{SlowQueryLogConfigTmpl: new("x")}, []string{"spec.slowQueryLogConfigTmpl"}},
		"the name of the Pod": {mocov1beta2.MySQLClusterSpec{PodTemplate: mocov1beta2.PodTemplate{ObjectMeta: namedMeta()}}, []string{"spec.podTemplate.metadata.name"}},
		"names of Services, sorted": {
			mocov1beta2.MySQLClusterSpec{
				ReplicaServiceTemplate: &mocov1beta2.ServiceTemplate{ObjectMeta: namedMeta()},
				PrimaryServiceTemplate: &mocov1beta2.ServiceTemplate{ObjectMeta: namedMeta()},
			},
			[]string{"spec.primaryServiceTemplate.metadata.name", "spec.replicaServiceTemplate.metadata.name"},
		},
		"containers that are not added": {
			mocov1beta2.MySQLClusterSpec{PodTemplate: mocov1beta2.PodTemplate{OverwriteContainers: []mocov1beta2.OverwriteContainer{
				{Name: "agent"}, {Name: "moco-init"}, {Name: "slow-log"},
			}}},
			[]string{"spec.podTemplate.overwriteContainers[0]", "spec.podTemplate.overwriteContainers[2]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, mocov1beta2.UnsupportedFields(row.spec)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func namedMeta() mocov1beta2.ObjectMeta { return mocov1beta2.ObjectMeta{Name: "x"} }
