// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// workerJob returns a job for the pool worker of the cluster infra.
func workerJob(change ...func(*hivev1.MachinePoolSpec)) *Job {
	job := &Job{InfraID: "infra", Generation: 1}
	job.Spec.Name = "worker"
	for _, c := range change {
		c(&job.Spec)
	}
	return job
}

func withReplicas(n int64) func(*hivev1.MachinePoolSpec) {
	return func(s *hivev1.MachinePoolSpec) { s.Replicas = new(n) }
}

func withAutoscaling(least, most int32, platform string) func(*hivev1.MachinePoolSpec) {
	return func(s *hivev1.MachinePoolSpec) {
		s.Autoscaling = &hivev1.MachinePoolAutoscaling{MinReplicas: least, MaxReplicas: most}
		s.Platform.Raw = []byte(platform)
	}
}

// machineSets returns MachineSets of the pool worker in the zones a, b and so on, with the given replicas. -1 leaves
// replicas unset.
func machineSets(replicas ...int32) []MachineSet {
	var sets []MachineSet
	for i, n := range replicas {
		set := MachineSet{Name: "infra-worker-" + string(rune('a'+i)), UID: fmt.Sprint(i), ResourceVersion: "7"}
		if n >= 0 {
			set.Replicas = new(n)
		}
		sets = append(sets, set)
	}
	return sets
}

func TestMachineSetsOfAPool(t *testing.T) {
	labelled := func(name string) map[string]string { return map[string]string{hivev1.MachinePoolNameLabel: name} }
	for name, row := range map[string]struct {
		set  MachineSet
		want bool
	}{
		"name from the installer belongs to the pool":                                        {MachineSet{Name: "infra-worker-us-east-1a", Zone: "us-east-1a"}, true},
		"name with an unknown zone belongs to the pool":                                      {MachineSet{Name: "infra-worker-0"}, true},
		"name without a zone belongs to the pool":                                            {MachineSet{Name: "infra-worker"}, true},
		"Azure name with location and zone belongs to the pool":                              {MachineSet{Name: "infra-worker-centralus1", Zone: "1", Location: "centralus"}, true},
		"GCP name with the end of the zone belongs to the pool":                              {MachineSet{Name: "infra-worker-b", Zone: "us-east1-b"}, true},
		"any name with the pool's label belongs to the pool":                                 {MachineSet{Name: "mine", Labels: labelled("worker")}, true},
		"name from the installer with the label of another pool does not belong to the pool": {MachineSet{Name: "infra-worker-us-east-1a", Labels: labelled("other")}, false},
		"name with another cluster's infraID does not belong to the pool":                    {MachineSet{Name: "infra2-worker-us-east-1a"}, false},
		"name with another pool's name does not belong to the pool":                          {MachineSet{Name: "infra-infra-us-east-1a"}, false},
		"name with a longer pool name does not belong to the pool":                           {MachineSet{Name: "infra-worker-large-a"}, false},
		"name of another pool without a zone does not belong to the pool":                    {MachineSet{Name: "infra-worker-large"}, false},
		"manual copy with more than a zone in its suffix does not belong to the pool":        {MachineSet{Name: "infra-worker-gpu-us-east-1a", Zone: "us-east-1a"}, false},
		"name that ends before the zone does not belong to the pool":                         {MachineSet{Name: "infra-worker-"}, false},
		"MachineSet that is being deleted does not belong to the pool":                       {MachineSet{Name: "infra-worker-a", IsDeleting: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			job := workerJob()
			job.OtherPools = []string{"large", "worker-large"}
			if got := job.Owns(&row.set); got != row.want {
				t.Errorf("expected %t, found %t", row.want, got)
			}
		})
	}
	unknown := workerJob()
	unknown.InfraID = ""
	if unknown.Owns(&MachineSet{Name: "-worker-a"}) {
		t.Error("expected no MachineSet to match by its name without an infraID")
	}
}

// TestReplicasAreSpread tries every pool of up to twelve machines over up to five MachineSets.
func TestReplicasAreSpread(t *testing.T) {
	const maxTotal = 12
	for count := range 5 {
		sets := machineSets(make([]int32, count+1)...)
		for total := range int64(maxTotal + 1) {
			name := fmt.Sprintf("%d over %d", total, len(sets))
			after, _ := planSpread(t, name, workerJob(withReplicas(total)), sets)
			checkSpread(t, name, after, total, func(s hivev1.MachineSetStatus) int32 { return s.Replicas })
			for most := max(total, 1); most <= maxTotal; most++ {
				checkAutoscaling(t, int32(total), int32(most), sets)
			}
		}
	}
}

func planSpread(t *testing.T, name string, job *Job, sets []MachineSet) (after []hivev1.MachineSetStatus, autoscalers int) {
	t.Helper()
	changes, refused := PlanChanges(job, sets, nil, true)
	if refused != nil {
		t.Fatal(name, refused)
	}
	return changes.After, len(changes.Autoscalers)
}

func checkAutoscaling(t *testing.T, least, most int32, sets []MachineSet) {
	t.Helper()
	name := fmt.Sprintf("%d to %d over %d", least, most, len(sets))
	after, autoscalers := planSpread(t, name, workerJob(withAutoscaling(least, most, `{"aws":{}}`)), sets)
	checkSpread(t, name, after, int64(least), func(s hivev1.MachineSetStatus) int32 { return s.MinReplicas })
	wanted := 0
	for _, set := range after {
		if set.MinReplicas > set.MaxReplicas || set.Replicas < set.MinReplicas || set.Replicas > set.MaxReplicas {
			t.Errorf("%s: expected a number within its limits, found %+v", name, set)
		}
		if set.MaxReplicas > 0 {
			wanted++
		}
	}
	if autoscalers != wanted {
		t.Errorf("%s: expected %d MachineAutoscalers, found %d", name, wanted, autoscalers)
	}
}

// checkSpread expects shares that differ by at most one, with the larger ones first.
func checkSpread(t *testing.T, name string, sets []hivev1.MachineSetStatus, total int64, share func(hivev1.MachineSetStatus) int32) {
	t.Helper()
	sum, first, last := int64(0), share(sets[0]), share(sets[0])
	for _, set := range sets {
		if n := share(set); n > last || first-n > 1 {
			t.Errorf("%s: expected shares that differ by one at most, the larger ones first, found %+v", name, sets)
		}
		last = share(set)
		sum += int64(share(set))
	}
	if sum != total {
		t.Errorf("%s: expected %d in all, found %d", name, total, sum)
	}
}

func TestPlanChanges(t *testing.T) {
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	autoscaler := func(name, target, pool string) Autoscaler {
		return Autoscaler{Name: name, Target: target, Min: 1, Max: 2, Labels: map[string]string{hivev1.MachinePoolNameLabel: pool}}
	}
	for name, row := range map[string]struct {
		job         *Job
		sets        []MachineSet
		autoscalers []Autoscaler
		noScaling   bool
		// want lists the changes in order, or the reason for the refusal and a part of its message.
		want []string
	}{
		"replicas of a pool are spread over its MachineSets":                                 {job: workerJob(withReplicas(3)), sets: machineSets(1, 1), want: []string{"a: replicas from 1 to 2", "b: "}},
		"pool without replicas has one machine":                                              {job: workerJob(), sets: machineSets(0, 0), want: []string{"a: replicas from 0 to 1", "b: "}},
		"MachineSet without replicas gets the replicas of the pool":                          {job: workerJob(withReplicas(2)), sets: machineSets(-1), want: []string{"a: replicas from none to 2"}},
		"zero replicas are accepted":                                                         {job: workerJob(withReplicas(0)), sets: machineSets(2), want: []string{"a: replicas from 2 to 0"}},
		"pool whose only MachineSet is being deleted is refused":                             {job: workerJob(withReplicas(1)), sets: []MachineSet{{Name: "infra-worker-a", IsDeleting: true, Labels: map[string]string{hivev1.MachinePoolNameLabel: "worker"}}}, want: []string{"NoMachineSets infra-worker-ZONE"}},
		"pool without MachineSets is refused":                                                {job: workerJob(withReplicas(1)), sets: []MachineSet{{Name: "other"}}, want: []string{"NoMachineSets Torpor does not create MachineSets"}},
		"pool with too many MachineSets is refused":                                          {job: workerJob(withReplicas(1)), sets: machineSets(make([]int32, MaxMachineSets+1)...), want: []string{"TooManyMachineSets found 101"}},
		"autoscaling without the MachineAutoscaler API is refused":                           {job: workerJob(withAutoscaling(1, 2, `{}`)), sets: machineSets(1), noScaling: true, want: []string{"NoMachineAPI use spec.replicas"}},
		"minimum below the number of MachineSets is refused":                                 {job: workerJob(withAutoscaling(1, 2, `{"vsphere":{}}`)), sets: machineSets(1, 1), want: []string{"MinReplicasTooSmall at least 2"}},
		"minimum below the number of MachineSets is accepted where MachineSets may be empty": {job: workerJob(withAutoscaling(1, 2, `{"aws":{}}`)), sets: machineSets(1, 1), want: []string{"a: ", "b: ", "a: autoscaling from 1 to 1", "b: autoscaling from 0 to 1"}},
		"replicas within the limits are kept":                                                {job: workerJob(withAutoscaling(2, 8, `{}`)), sets: machineSets(3, 9), want: []string{"a: ", "b: replicas from 9 to 4", "a: autoscaling from 1 to 4", "b: autoscaling from 1 to 4"}},
		"existing MachineAutoscaler is changed": {
			job: workerJob(withAutoscaling(1, 3, `{}`)), sets: machineSets(1), autoscalers: []Autoscaler{autoscaler("theirs", "infra-worker-a", "")},
			want: []string{"a: ", "theirs: autoscaling from 1 to 3"},
		},
		"duplicate and orphaned MachineAutoscalers are deleted, and another pool's is not": {
			job: workerJob(withAutoscaling(1, 2, `{}`)), sets: machineSets(1),
			autoscalers: []Autoscaler{autoscaler("1", "infra-worker-a", "worker"), autoscaler("2", "infra-worker-a", ""), autoscaler("3", "gone", "worker"), autoscaler("4", "else", "other")},
			want:        []string{"-2", "-3", "a: ", "1: "},
		},
		"pool without autoscaling deletes the MachineAutoscalers of its MachineSets": {
			job: workerJob(withReplicas(1)), sets: machineSets(1), autoscalers: []Autoscaler{autoscaler("1", "infra-worker-a", ""), autoscaler("2", "else", "")},
			want: []string{"-1", "a: "},
		},
		"changed labels and taints are reported": {
			job: workerJob(withReplicas(1), func(s *hivev1.MachinePoolSpec) {
				s.Labels, s.Taints = map[string]string{"tier": "gold"}, []corev1.Taint{gpu, {Key: "gpu", Value: "second", Effect: corev1.TaintEffectNoSchedule}}
			}),
			sets: []MachineSet{
				{Name: "infra-worker-a", Replicas: new(int32(1)), NodeLabels: map[string]string{"tier": "gold", "theirs": "yes"}, Taints: []corev1.Taint{gpu}},
				{Name: "infra-worker-b", Replicas: new(int32(0)), NodeLabels: map[string]string{"tier": "tin"}, Taints: []corev1.Taint{gpu, {Key: "theirs", Effect: corev1.TaintEffectNoExecute}}},
			},
			want: []string{"a: ", "b: labels, taints"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			changes, refused := PlanChanges(row.job, row.sets, row.autoscalers, !row.noScaling)
			if refused != nil {
				reason, words, _ := strings.Cut(row.want[0], " ")
				if refused.Reason != reason || !strings.Contains(refused.Message, words) {
					t.Errorf("expected %q, found %+v", row.want, refused)
				}
				return
			}
			var got []string
			for _, deleted := range changes.DeleteAutoscalers {
				got = append(got, "-"+deleted)
			}
			for _, change := range append(changes.MachineSets, changes.Autoscalers...) {
				got = append(got, strings.TrimPrefix(change.Name, "infra-worker-")+": "+strings.Join(change.Differences, ", "))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManifestNamesTheVersionThatWasSeen(t *testing.T) {
	changes, _ := PlanChanges(workerJob(withReplicas(2)), machineSets(1), nil, true)
	var manifest map[string]any
	if err := json.Unmarshal(changes.MachineSets[0].Manifest, &manifest); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
		"metadata": map[string]any{
			"name": "infra-worker-a", "namespace": "openshift-machine-api", "uid": "0", "resourceVersion": "7", "labels": map[string]any{hivev1.MachinePoolNameLabel: "worker"},
		},
		"spec": map[string]any{"replicas": 2.0, "template": map[string]any{"spec": map[string]any{}}},
	}
	if diff := cmp.Diff(want, manifest); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
}

func TestHostileObjectsAreRefused(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, row := range map[string]struct {
		item string
		want bool
	}{
		"complete MachineSet is accepted":                             {`{"metadata":{"name":"a"},"spec":{"replicas":1,"template":{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}}}`, true},
		"MachineSet with an unknown form of providerSpec is accepted": {`{"metadata":{"name":"a"},"spec":{"template":{"spec":{"providerSpec":{"value":{"zone":["a"]}}}}}}`, true},
		"number instead of an object is refused":                      {`7`, false},
		"object without a name is refused":                            {`{}`, false},
		"name with a path traversal is refused":                       {`{"metadata":{"name":"../secrets"}}`, false},
		"name with a line break is refused":                           {`{"metadata":{"name":"a\nb"}}`, false},
		"very long name is refused":                                   {`{"metadata":{"name":"` + long + `"}}`, false},
		"invalid labels are refused":                                  {`{"metadata":{"name":"a","labels":[7]}}`, false},
		"too many taints are refused":                                 {`{"metadata":{"name":"a"},"spec":{"template":{"spec":{"taints":[` + strings.Repeat("{},", 30_000) + `{}]}}}}`, false},
		"replicas beyond 32 bits are refused":                         {`{"metadata":{"name":"a"},"spec":{"replicas":99999999999}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeMachineSet([]byte(row.item)); (err == nil) != row.want {
				t.Errorf("expected it to be taken: %t, found %v", row.want, err)
			}
		})
	}
	set, err := DecodeMachineSet([]byte(`{"metadata":{"name":"a"},"status":{"errorReason":"` + long + `","errorMessage":"two\nlines"}}`))
	if err != nil || len(set.ErrorReason) != maxReasonBytes || set.ErrorMessage != "two lines" {
		t.Errorf("expected texts to be cut, found %+v and %v", set, err)
	}
	if _, err := DecodeAutoscaler([]byte(`{"metadata":{"name":"a/b"}}`)); err == nil {
		t.Error("expected a name that leads elsewhere to be refused, found it taken")
	}
}
