// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// shownLag is how long the cloud returns the old state.
	shownLag = 2 * time.Second
	// flipInterval is the interval between changes to a power state.
	flipInterval = time.Second
	// usualFlips is the number of power state changes of all clusters together, unless TORPOR_FLIPS sets another
	// number. There are at least minFlipped clusters, and more if each would change more than maxFlipsEach times.
	usualFlips, minFlipped, maxFlipsEach = 200, 10, 200
	flipsVariable                        = "TORPOR_FLIPS"
)

// fault is a failure during a hibernation and during the next resume. The cluster must reach the power state
// afterwards.
type fault struct {
	// cloudFlags are the flags of a separate cloud for this cluster.
	cloudFlags []string
	// before runs before the power state is requested, and during runs after that. Both may be nil.
	before, during func(*testing.T, *testCluster)
	// shows contains the reported condition for each requested power state. Without an entry, the test does not wait.
	shows map[hivev1.PowerState]expectedCondition
	// end removes the fault; nil if no action is needed.
	end func(*testing.T, *testCluster)
}

// faults are faults from the table in docs/testing.md. The other rows of the table have separate tests.
func faults() map[string]fault {
	inject := func(f testenv.CloudFault) func(*testing.T, *testCluster) {
		return func(t *testing.T, s *testCluster) { t.Helper(); s.cloud.InjectFault(t, f) }
	}
	oneMachine := func(f testenv.CloudFault) func(*testing.T, *testCluster) {
		return func(t *testing.T, s *testCluster) {
			t.Helper()
			f.InstanceIDs = s.ids[:1]
			s.cloud.InjectFault(t, f)
		}
	}
	restore := func(t *testing.T, s *testCluster) { t.Helper(); s.cloud.ClearFaults(t) }
	both := func(e expectedCondition) map[hivev1.PowerState]expectedCondition {
		return map[hivev1.PowerState]expectedCondition{hivev1.PowerStateHibernating: e, hivev1.PowerStateRunning: e}
	}
	unknown := func(reason string) map[hivev1.PowerState]expectedCondition {
		return both(expectedCondition{hivev1.ClusterHibernatingCondition, "Unknown", reason, nil})
	}
	ready := func(hibernating, running string) map[hivev1.PowerState]expectedCondition {
		return map[hivev1.PowerState]expectedCondition{
			hivev1.PowerStateHibernating: {hivev1.ClusterReadyCondition, "False", hibernating, nil},
			hivev1.PowerStateRunning:     {hivev1.ClusterReadyCondition, "False", running, nil},
		}
	}
	return map[string]fault{
		"the cloud throttles all calls": {
			before: inject(testenv.CloudFault{Code: "RequestLimitExceeded"}), shows: unknown(hivev1.CloudThrottledReason), end: restore,
		},
		"the cloud accepts one call per second":     {cloudFlags: []string{"--rate", "1", "--burst", "5"}},
		"the cloud shows the effect of orders late": {cloudFlags: []string{"--read-lag", shownLag.String()}},
		"one machine hangs between two states": {
			before: func(t *testing.T, s *testCluster) {
				t.Helper()
				oneMachine(testenv.CloudFault{Kind: "stuckStopping"})(t, s)
				oneMachine(testenv.CloudFault{Kind: "stuckPending"})(t, s)
			},
			shows: ready(hivev1.StoppingMachinesReason, hivev1.StartingMachinesReason), end: restore,
		},
		"start of one machine is refused until the cloud has capacity": {
			before: oneMachine(testenv.CloudFault{Action: "StartInstances", Code: "InsufficientInstanceCapacity", Message: "No room."}),
			shows: map[hivev1.PowerState]expectedCondition{
				hivev1.PowerStateRunning: {hivev1.ClusterDegradedCondition, "True", hivev1.MachinesMissingReason, nil},
			},
			end: restore,
		},
		"one machine is replaced by another": {during: func(t *testing.T, s *testCluster) {
			t.Helper()
			s.ids[0] = s.cloud.ReplaceInstance(t, s.infraID, s.ids[0])
			s.env.witness.addMachines(s)
		}},
		"the cloud is down": {
			before: func(t *testing.T, s *testCluster) { t.Helper(); s.cloud.KillAtOnce(t) },
			shows:  unknown(hivev1.CloudUnreachableReason),
			end: func(t *testing.T, s *testCluster) {
				t.Helper()
				s.cloud = startCloudAgain(t, s.cloud, s.cloudDir, nil)
			},
		},
		"the credentials are revoked and restored": {
			before: inject(testenv.CloudFault{Code: "AuthFailure"}), shows: unknown(hivev1.CredentialsInvalidReason), end: restore,
		},
		"the cloud accepts calls and does not answer": {
			before: inject(testenv.CloudFault{Delay: "1h"}), shows: unknown(hivev1.CloudUnreachableReason), end: restore,
		},
		"the API server accepts connections and does not answer": {
			before: func(t *testing.T, s *testCluster) {
				t.Helper()
				good := string(s.env.adminKubeconfig(t)[kubeconfigKey])
				s.putSecret(t, adminSecret, map[string][]byte{kubeconfigKey: []byte(strings.ReplaceAll(good, s.env.Config.Host, "https://"+listenSilently(t)))})
			},
			// Before the hibernation, the nodes are read over the existing connection.
			shows: map[hivev1.PowerState]expectedCondition{hivev1.PowerStateRunning: {hivev1.ClusterReadyCondition, "False", hivev1.WaitingForAPIReason, nil}},
			end: func(t *testing.T, s *testCluster) {
				t.Helper()
				s.putSecret(t, adminSecret, s.env.adminKubeconfig(t))
			},
		},
	}
}

// TestFaults injects each fault into a cluster with a separate cloud, all at the same time. It counts the stops that
// the manager sent without reading the current spec, or against it.
func TestFaults(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.witness = newStopWitness(t, e)
	e.startManager(t, clouds())
	t.Run("rows", func(t *testing.T) {
		for name, f := range faults() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := e.newWitnessedClusters(t, 1, f.cloudFlags)[0]
				for _, state := range []hivev1.PowerState{hivev1.PowerStateHibernating, hivev1.PowerStateRunning} {
					s.meetFault(t, f, state)
				}
			})
		}
		t.Run("power state changes every second while the cloud throttles and lags", func(t *testing.T) {
			t.Parallel()
			e.flipPowerStates(t)
		})
	})
	if e.witness.stops == 0 || len(e.witness.wrong) > 0 {
		t.Errorf("expected stops, all of clusters that should hibernate, found %d and wrong ones: %q", e.witness.stops, e.witness.wrong)
	}
}

func (s *testCluster) meetFault(t *testing.T, f fault, state hivev1.PowerState) {
	t.Helper()
	if f.before != nil {
		f.before(t, s)
	}
	s.env.witness.request(t, s, state)
	if f.during != nil {
		f.during(t, s)
	}
	if shown, ok := f.shows[state]; ok {
		s.awaitCondition(t, shown)
	}
	if f.end != nil {
		f.end(t, s)
	}
	testenv.Eventually(t, s.infraID+" is whole", func() error {
		if meta.IsStatusConditionTrue(s.get(t).Status.Conditions, hivev1.ClusterDegradedCondition) {
			return errors.New("it is degraded")
		}
		if state == hivev1.PowerStateRunning { // A machine of a running cluster no longer counts as missing once it starts.
			if err := s.cloud.ExpectState(t, s.infraID, "running"); err != nil {
				return fmt.Errorf("ask the cloud: %w", err)
			}
		}
		return s.hasCondition(settledCondition(state))
	})
	s.awaitSettled(t, state)
}

// startCloudAgain restarts a killed cloud with the same folder and port.
func startCloudAgain(t *testing.T, killed *testenv.CloudServer, dir string, flags []string) *testenv.CloudServer {
	t.Helper()
	u, err := url.Parse(killed.URL)
	testenv.ExpectNoError(t, err)
	return testenv.StartCloud(t, append([]string{"--port", u.Port(), "--dir", dir}, flags...)...)
}

// listenSilently returns an address that accepts connections and never answers.
func listenSilently(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testenv.ExpectNoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// flipPowerStates changes the power states of an account's clusters every second, and then lets them come to rest.
// Half of them are set to one state and half to the other.
func (e *env) flipPowerStates(t *testing.T) {
	t.Helper()
	flips := usualFlips
	if text := os.Getenv(flipsVariable); text != "" {
		var err error
		flips, err = strconv.Atoi(text)
		testenv.ExpectNoError(t, err)
	}
	all := e.newWitnessedClusters(t, max(minFlipped, flips/maxFlipsEach), []string{"--read-lag", shownLag.String()})
	shared := all[0].cloud
	wanted := func(round, i int) hivev1.PowerState {
		if (round+i)%2 == 0 {
			return hivev1.PowerStateHibernating
		}
		return hivev1.PowerStateRunning
	}
	rounds, tick := flips/len(all), time.NewTicker(flipInterval)
	defer tick.Stop()
	for round := range rounds {
		// The cloud makes the manager retry. The retry must not stop a cluster that should run by then.
		shared.InjectFault(t, testenv.CloudFault{Action: "StopInstances", Code: "RequestLimitExceeded", Times: 1})
		for i, s := range all {
			e.witness.request(t, s, wanted(round, i))
		}
		<-tick.C
	}
	shared.ClearFaults(t)
	for i, s := range all {
		s.awaitSettled(t, wanted(rounds-1, i))
	}
	stops, raced := e.witness.counts()
	t.Logf("%d flips; all clusters of the test were stopped %d times, %d of them at the moment at which they were requested to run", rounds*len(all), stops, raced)
}
