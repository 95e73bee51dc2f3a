// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// quietTime is the time for which clusters that only a user can fix must stay unchanged.
	quietTime = 4 * time.Second
	// maxLatePasses is the number of reconciliations that one cluster may have in quietTime: one at its retry
	// interval, which requests a poll of the cloud, and one with the result of the poll.
	maxLatePasses = 2
	// maxEarlyPasses is the number of reconciliations that one cluster may have before quietTime: two, and two more
	// for each change by a test. Each shortestRetry that elapses before quietTime adds two.
	maxEarlyPasses, shortestRetry = 8, time.Minute
	// maxAttempts is the number of times that the actuator tries a failing call.
	maxAttempts = 4
)

// badInput is a cluster that cannot be handled, and its expected conditions.
type badInput struct {
	// make introduces the mistake into a valid cluster that should hibernate.
	make func(*clusterSetup)
	// then is called once the cluster exists.
	then func(*testing.T, *testCluster)
	want []expectedCondition
}

func unknownConditions(reason string, says ...string) []expectedCondition {
	return []expectedCondition{
		{hivev1.ClusterHibernatingCondition, "Unknown", reason, says},
		{hivev1.ClusterReadyCondition, "Unknown", reason, says},
	}
}

func unsupportedConditions(says ...string) []expectedCondition {
	return []expectedCondition{
		{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, says},
		{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, []string{"left as it is"}},
		{hivev1.ClusterUnreachableCondition, "False", hivev1.ClusterReachableReason, nil},
	}
}

func unreachableConditions(says ...string) []expectedCondition {
	return []expectedCondition{
		{hivev1.ClusterHibernatingCondition, "False", hivev1.RunningHibernationReason, []string{"should run"}},
		{hivev1.ClusterReadyCondition, "False", hivev1.APIUnreachableReason, says},
		{hivev1.ClusterUnreachableCondition, "True", hivev1.ErrorConnectingToClusterReason, says},
	}
}

// incompleteObjects are clusters that cannot be handled because of their objects.
func incompleteObjects() map[string]badInput {
	const toBeSet = "found it empty; set it"
	annotated := func(name, value string) func(*clusterSetup) {
		return func(r *clusterSetup) { r.cd.Annotations = map[string]string{name: value} }
	}
	version := func(v string) func(*clusterSetup) {
		return func(r *clusterSetup) { r.cd.Labels = map[string]string{hivev1.VersionLabel: v} }
	}
	return map[string]badInput{
		"cluster metadata is missing": {
			make: func(r *clusterSetup) { r.cd.Spec.ClusterMetadata = nil },
			want: unknownConditions(hivev1.InvalidSpecReason, "spec.clusterMetadata.infraID", "adminKubeconfigSecretRef.name", toBeSet),
		},
		"infraID is empty": {
			make: func(r *clusterSetup) { r.cd.Spec.ClusterMetadata.InfraID = "" },
			want: unknownConditions(hivev1.InvalidSpecReason, "Expected spec.clusterMetadata.infraID to be set", toBeSet),
		},
		"name of the kubeconfig Secret is empty": {
			make: func(r *clusterSetup) { r.cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = "" },
			want: unknownConditions(hivev1.InvalidSpecReason, "Expected spec.clusterMetadata.adminKubeconfigSecretRef.name to be set", toBeSet),
		},
		"name of the credentials Secret is empty": {
			make: func(r *clusterSetup) { r.cd.Spec.Platform.AWS.CredentialsSecretRef.Name = "" },
			want: unknownConditions(hivev1.InvalidSpecReason, "Expected spec.platform.aws.credentialsSecretRef.name to be set", toBeSet),
		},
		"region is empty": {
			make: func(r *clusterSetup) { r.cd.Spec.Platform.AWS.Region = "" },
			want: unknownConditions(hivev1.InvalidSpecReason, "Expected spec.platform.aws.region to be set", toBeSet),
		},
		"URL override is not a URL": {
			make: func(r *clusterSetup) {
				r.cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIURLOverride: "the other one"}
			},
			want: unknownConditions(hivev1.InvalidSpecReason, `expected spec.controlPlaneConfig.apiURLOverride to be a URL such as https://api.example.com:6443, or host:port, found "the other one"; correct`),
		},
		"IP override is not an IP address": {
			make: func(r *clusterSetup) {
				r.cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIServerIPOverride: "api.example.com"}
			},
			want: append(unknownConditions(hivev1.InvalidSpecReason, `expected spec.controlPlaneConfig.apiServerIPOverride to be an IP address, found "api.example.com"; correct`),
				expectedCondition{hivev1.ClusterUnreachableCondition, "Unknown", hivev1.NotProbedReason, []string{"not probed"}}),
		},
		"platform is missing": {
			make: func(r *clusterSetup) { r.cd.Spec.Platform.AWS = nil },
			want: unsupportedConditions("Expected one of the platforms aws under spec.platform"),
		},
		"platform is unknown": {
			make: func(r *clusterSetup) { r.platform = map[string]any{"abacus": map[string]any{"beads": "ten"}} },
			want: unsupportedConditions("Expected one of the platforms aws under spec.platform"),
		},
		"cluster is not installed": {
			make: func(r *clusterSetup) { r.cd.Spec.Installed = false },
			want: unknownConditions(hivev1.NotInstalledReason, "spec.installed is not true"),
		},
		"version is missing": {
			make: func(r *clusterSetup) { r.cd.Labels, r.kubeconfig = nil, nil },
			want: []expectedCondition{
				{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{"No version of the cluster is known", "expected OpenShift 4.4.8 or later in status.clusterVersionStatus.desired.version"}},
				{hivev1.ClusterReadyCondition, "False", hivev1.APIUnreachableReason, []string{"Expected the Secret " + adminSecret}},
			},
		},
		"version is malformed": {
			make: version("four-point-sixteen"),
			want: unsupportedConditions(`Expected an OpenShift version such as 4.4.8, found "four-point-sixteen"; correct`),
		},
		"version is too old": {
			make: version("4.4.7"),
			want: unsupportedConditions("Expected OpenShift 4.4.8 or later, found 4.4.7; upgrade"),
		},
		"version is a pre-release of the first version that can hibernate": {
			make: version("4.4.8-rc.1"),
			want: unsupportedConditions("Expected OpenShift 4.4.8 or later, found 4.4.8-rc.1; upgrade"),
		},
		"reconciliation is paused by an annotation":       {make: annotated(hivev1.ReconcilePauseAnnotation, "true"), want: unknownConditions(hivev1.PausedReason, "remove the annotation to continue")},
		"power state changes are paused by an annotation": {make: annotated(hivev1.PowerStatePauseAnnotation, "1"), want: unknownConditions(hivev1.PausedReason, "remove the annotation to continue")},
		"cluster that is being deleted has a finalizer of another controller": {
			make: func(r *clusterSetup) {
				r.cd.Spec.Installed = false
				r.cd.Finalizers = []string{"example.com/held"}
			},
			then: func(t *testing.T, s *testCluster) {
				t.Helper()
				if err := s.env.Client.Delete(t.Context(), s.get(t)); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.patch(t, "alice", `{"metadata":{"finalizers":null}}`) })
			},
			want: unknownConditions(hivev1.DeletedReason, "being deleted; its machines are left as they are"),
		},
	}
}

// unobservableClouds are clusters in clouds that cannot be polled.
func unobservableClouds(throttled, refusing *testenv.CloudServer, closedPort string) map[string]badInput {
	key := func(name, value string) func(*clusterSetup) {
		return func(r *clusterSetup) { r.keys[name] = []byte(value) }
	}
	return map[string]badInput{
		"credentials Secret is missing": {
			make: func(r *clusterSetup) { r.keys = nil },
			want: unknownConditions(hivev1.CredentialsMissingReason, "Expected the Secret "+cloudSecret, "found none; create it"),
		},
		"credentials Secret has no keys": {
			make: func(r *clusterSetup) { r.keys = map[string][]byte{"unrelated": []byte("x")} },
			want: unknownConditions(hivev1.CredentialsMissingReason, "the credentials Secret has no aws_access_key_id: add it"),
		},
		"secret access key contains a line break": {
			make: key("aws_secret_access_key", testenv.SecretKey+"\nsecond line"),
			want: unknownConditions(hivev1.CredentialsInvalidReason, "aws_secret_access_key in the credentials Secret must be printable ASCII", "enter the value again"),
		},
		"access key is unknown to the cloud": {
			make: key("aws_access_key_id", wrongKey),
			want: unknownConditions(hivev1.CredentialsInvalidReason, "AuthFailure", "correct the credentials Secret or the region"),
		},
		"region differs from the cloud's region": {
			make: func(r *clusterSetup) { r.cd.Spec.Platform.AWS.Region = "elsewhere-1" },
			want: unknownConditions(hivev1.CredentialsInvalidReason, `valid region: this cloud is "local-1", the request is signed for "elsewhere-1"`, "correct the credentials Secret or the region"),
		},
		"region is malformed": {
			make: func(r *clusterSetup) { r.cd.Spec.Platform.AWS.Region = "Mars Base" },
			want: unknownConditions(hivev1.CloudErrorReason, `the region must be one such as us-east-1, found "Mars Base": set spec.platform.aws.region`),
		},
		"endpoint has no server": {
			make: key("endpoint_url", closedPort),
			want: unknownConditions(hivev1.CloudUnreachableReason, "127.0.0.1 in region local-1: the API does not respond; check the region, the endpoint and the network"),
		},
		"endpoint is malformed": {
			make: key("endpoint_url", "not a URL"),
			want: unknownConditions(hivev1.CloudErrorReason, "the endpoint must be a URL", "correct endpoint_url in the credentials Secret"),
		},
		"cloud denies a permission": {
			make: key("endpoint_url", refusing.URL),
			want: unknownConditions(hivev1.PermissionDeniedReason, "UnauthorizedOperation", "grant this permission to the user of the credentials Secret"),
		},
		"cloud throttles every call": {
			make: key("endpoint_url", throttled.URL),
			want: unknownConditions(hivev1.CloudThrottledReason, "RequestLimitExceeded", "retries the request automatically"),
		},
		"machines of a cluster that should hibernate are missing": {
			make: func(r *clusterSetup) { r.machines = 0 },
			want: unknownConditions(hivev1.NoMachinesFoundReason, "Expected machines of the cluster in spec.clusterMetadata, found none; check infraID"),
		},
		"machines of a cluster that should run are missing": {
			make: func(r *clusterSetup) { r.machines, r.cd.Spec.PowerState = 0, hivev1.PowerStateRunning },
			want: unknownConditions(hivev1.NoMachinesFoundReason, "found none; check infraID"),
		},
	}
}

// unreachableClusters are clusters that should run, but have an API server that cannot be probed.
func unreachableClusters() map[string]badInput {
	kubeconfig := func(data map[string][]byte) func(*clusterSetup) {
		return func(r *clusterSetup) { r.kubeconfig, r.cd.Spec.PowerState = data, hivev1.PowerStateRunning }
	}
	plugin := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
		"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/false","interactiveMode":"Never"}}}]}`
	token := map[string][]byte{kubeconfigKey: []byte(strings.Replace(plugin, `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/false","interactiveMode":"Never"}`, `"token":"t"`, 1))}
	return map[string]badInput{
		"kubeconfig Secret is missing": {
			make: kubeconfig(nil),
			want: unreachableConditions("Expected the Secret " + adminSecret),
		},
		"kubeconfig Secret has no kubeconfig": {
			make: kubeconfig(map[string][]byte{"other": []byte("x")}),
			want: unreachableConditions("the kubeconfig cannot be read; expected a kubeconfig with"),
		},
		"kubeconfig is unreadable": {
			make: kubeconfig(map[string][]byte{kubeconfigKey: []byte("{{{ " + testenv.SecretKey)}),
			want: unreachableConditions("the kubeconfig cannot be read; expected a kubeconfig with"),
		},
		"kubeconfig runs a program": {
			make: kubeconfig(map[string][]byte{kubeconfigKey: []byte(plugin)}),
			want: unreachableConditions("refers to files, programs or plugins; expected certificates, keys or tokens embedded in it"),
		},
		"address in the kubeconfig has no server": {
			make: kubeconfig(token),
			want: unreachableConditions("the connection is refused"),
		},
		"address in the URL override has no server": {
			make: func(r *clusterSetup) {
				r.cd.Spec.PowerState, r.cd.Spec.ControlPlaneConfig = hivev1.PowerStateRunning, &hivev1.ControlPlaneConfig{APIURLOverride: "127.0.0.1:1"}
			},
			want: unreachableConditions("the connection is refused; the connection uses spec.controlPlaneConfig.apiURLOverride"),
		},
		"kubeconfig for a URL override has no CA certificate": {
			make: func(r *clusterSetup) {
				kubeconfig(token)(r)
				r.cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIURLOverride: "127.0.0.1:1"}
			},
			want: unreachableConditions("expected certificate-authority-data or tls-server-name in the kubeconfig"),
		},
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "--start-latency", "0s")
	began := time.Now()
	throttled, refusing := testenv.StartCloud(t), testenv.StartCloud(t)
	refusing.InjectFault(t, testenv.CloudFault{
		Code: "UnauthorizedOperation", Message: "No way for " + testenv.AccessKey + " with " + testenv.SecretKey,
	})
	throttled.InjectFault(t, testenv.CloudFault{Code: "RequestLimitExceeded", Message: "Request limit exceeded for " + testenv.AccessKey})
	e.startManager(t, clouds())
	made, rows := map[string]*testCluster{}, map[string]badInput{}
	for _, table := range []map[string]badInput{incompleteObjects(), unobservableClouds(throttled, refusing, "http://"+testenv.FreeAddress(t)), unreachableClusters()} {
		for name, row := range table {
			rows[name] = row
			made[name] = e.newCluster(t, func(r *clusterSetup) {
				r.cd.Spec.PowerState = hivev1.PowerStateHibernating
				row.make(r)
			})
			if row.then != nil {
				row.then(t, made[name])
			}
		}
	}
	for name, row := range rows {
		t.Run("Bad input: "+name, func(t *testing.T) {
			for _, e := range row.want {
				made[name].awaitCondition(t, e)
			}
		})
	}
	e.expectQuiet(t, made, began)
	maxPasses := maxPassesSince(began) + maxLatePasses
	calls := e.cloud.CountCalls(t)
	if n := calls["StopInstances"] + calls["StartInstances"]; n > 0 {
		t.Errorf("expected no start or stop of a machine, found %d", n)
	}
	if n, most := calls["DescribeInstances"], len(rows)*maxPasses; n > most {
		t.Errorf("the cloud was called %d times for %d clusters, want at most %d", n, len(rows), most)
	}
	if n, most := throttled.CountCalls(t)["DescribeInstances"], maxAttempts*maxPasses; n > most {
		t.Errorf("a cloud that throttles was called %d times, want at most %d", n, most)
	}
}

func maxPassesSince(began time.Time) int {
	return maxEarlyPasses + 2*int(time.Since(began)/shortestRetry)
}

// expectQuiet observes the clusters for a while. No cluster may have more passes than its retry interval allows, and no
// status may be written.
func (e *env) expectQuiet(t *testing.T, made map[string]*testCluster, began time.Time) {
	t.Helper()
	before, maxEarly := e.counts.all(), maxPassesSince(began)
	<-time.After(quietTime)
	after := e.counts.all()
	for name, s := range made {
		first, then := before[s.key], after[s.key]
		if first.passes == 0 || first.passes > maxEarly || then.passes-first.passes > maxLatePasses {
			t.Errorf("%s: %d passes and then %d in %s, want 1 to %d and at most %d", name,
				first.passes, then.passes-first.passes, quietTime, maxEarly, maxLatePasses)
		}
		if then.writes != first.writes {
			t.Errorf("%s: the status was written %d times in %s, want none", name, then.writes-first.writes, quietTime)
		}
	}
}

// corrections are mistakes that a user corrects. The next pass notices the correction. It runs
// after a minute at the latest, because Secrets are not watched.
func corrections() map[string]struct {
	make    func(*clusterSetup)
	trouble string
	correct func(*testing.T, *testCluster)
} {
	return map[string]struct {
		make    func(*clusterSetup)
		trouble string
		correct func(*testing.T, *testCluster)
	}{
		"missing Secret is reported until it is created": {
			func(r *clusterSetup) { r.keys = nil }, hivev1.CredentialsMissingReason,
			func(t *testing.T, s *testCluster) { t.Helper(); s.putSecret(t, cloudSecret, s.cloud.CredentialsData()) },
		},
		"empty Secret is reported until it has its keys": {
			func(r *clusterSetup) { r.keys = map[string][]byte{} }, hivev1.CredentialsMissingReason,
			func(t *testing.T, s *testCluster) { t.Helper(); s.putSecret(t, cloudSecret, s.cloud.CredentialsData()) },
		},
		"wrong key is reported until it is corrected": {
			func(r *clusterSetup) { r.keys["aws_access_key_id"] = []byte(wrongKey) }, hivev1.CredentialsInvalidReason,
			func(t *testing.T, s *testCluster) { t.Helper(); s.putSecret(t, cloudSecret, s.cloud.CredentialsData()) },
		},
		"wrong region is reported until it is corrected": {
			func(r *clusterSetup) { r.cd.Spec.Platform.AWS.Region = "elsewhere-1" }, hivev1.CredentialsInvalidReason,
			func(t *testing.T, s *testCluster) {
				t.Helper()
				s.patch(t, "alice", fmt.Sprintf(`{"spec":{"platform":{"aws":{"region":%q}}}}`, testenv.Region))
			},
		},
		"pause is reported until its annotation is removed": {
			func(r *clusterSetup) { r.cd.Annotations = map[string]string{hivev1.PowerStatePauseAnnotation: "true"} }, hivev1.PausedReason,
			func(t *testing.T, s *testCluster) {
				t.Helper()
				s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, hivev1.PowerStatePauseAnnotation))
			},
		},
		"unknown version is reported until it is known": {
			func(r *clusterSetup) {
				r.cd.Labels, r.kubeconfig, r.cd.Spec.PowerState = nil, nil, hivev1.PowerStateHibernating
			}, hivev1.UnsupportedHibernationReason,
			func(t *testing.T, s *testCluster) {
				t.Helper()
				s.putSecret(t, adminSecret, s.env.adminKubeconfig(t))
				patch := `{"status":{"clusterVersionStatus":{"desired":{"version":"4.16.3"}}},"spec":{}}`
				if err := s.env.Client.SubResource("status").Patch(t.Context(), s.get(t), rawMerge(patch)); err != nil {
					t.Fatal(err)
				}
				s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "True", hivev1.HibernatingHibernationReason, nil})
				s.setPowerState(t, hivev1.PowerStateRunning)
			},
		},
	}
}

func TestCorrectionsAreNoticedAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	t.Run("rows", func(t *testing.T) {
		for name, row := range corrections() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := e.newCluster(t, row.make)
				status := "Unknown"
				if row.trouble == hivev1.UnsupportedHibernationReason {
					status = "False"
				}
				s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, status, row.trouble, nil})
				row.correct(t, s)
				s.awaitSettled(t, hivev1.PowerStateRunning)
			})
		}
	})
}
