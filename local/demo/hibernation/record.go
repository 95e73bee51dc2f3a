// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	clusterTarget = "clusterdeployment/" + clusterName
	stopReason    = "no budget until Monday"
	// stopDuration is longer than the time that a stop of the machines takes.
	stopDuration = time.Minute
	// extension is the time from the extension of the stop to its new end.
	extension = 75 * time.Second
)

// RunRecordDemo shows how one person stops a cluster, a second person asks why, a third person extends the stop, and
// the stop ends automatically.
func RunRecordDemo(ctx context.Context, c Config) error {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return err
	}
	return d.RunDemo(runner.Demo{
		Steps:    append(d.environmentSteps(), d.installPolicies, d.stopAsAlice, d.askAsBob, d.prolongAsCarol, d.awaitEnd, d.showHistory),
		Duration: "three minutes",
		LastStep: "Stop everything",
		VerifyCleanUp: func() {
			runner.ExpectNoError(verifyNoProcesses())
			d.PrintObserved("every process that was started has ended")
		},
		Summary: func() string {
			return fmt.Sprintf("; at most %d MiB of memory were in use at once", d.memory.peakMiB())
		},
	})
}

// as runs kubectl torpor and impersonates a person with administrator access.
func (d *clusterDemo) as(person string, limit time.Duration, args ...string) string {
	all := append([]string{"torpor"}, args...)
	return d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: append(all, "--as", person, "--as-group", "system:masters"), Limit: limit})
}

// stopRow is a row in the output of kubectl torpor status.
type stopRow struct {
	State   string    `json:"state"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Until   time.Time `json:"until"`
	UntilBy string    `json:"untilBy"`
}

func (d *clusterDemo) readStatus() stopRow {
	var rows []stopRow
	runner.ExpectNoError(json.Unmarshal([]byte(d.as("bob", commandLimit, "status", clusterTarget, "-o", "json")), &rows))
	if len(rows) != 1 {
		runner.FailStep("expected one switch of %s, found %d", clusterTarget, len(rows))
	}
	return rows[0]
}

func (d *clusterDemo) installPolicies() {
	d.BeginStep("kubectl apply -k config/record: the API server records the requester")
	d.kubectl("apply", "-k", filepath.Join(filepath.Dir(d.config.CRDs), "record"))
	d.Poll("the API server to follow the policy", readyLimit, func(context.Context) {
		noted := d.kubectl("patch", "cd", clusterName, "--type=merge", "-p", "spec: {powerState: Hibernating}", "--dry-run=server",
			"-o", `jsonpath={.metadata.annotations.torpor\.dev/requested-by}`)
		if noted == "" {
			runner.FailStep("expected a recorded requester, found none")
		}
	})
	d.PrintObserved("the requester is recorded in the request itself")
}

func (d *clusterDemo) stopAsAlice() {
	d.BeginStep("alice: kubectl torpor hibernate " + clusterName + " --reason … --until " + stopDuration.String() + " --wait")
	d.PrintObserved("%s", d.as("alice", powerLimit, "hibernate", clusterName, "--reason", stopReason, "--until", stopDuration.String(), "--wait"))
	d.verifyInstancesAre("stopped")
}

func (d *clusterDemo) askAsBob() {
	d.BeginStep("bob: kubectl torpor why " + clusterTarget)
	d.QuoteOutput(d.as("bob", commandLimit, "why", clusterTarget))
	if row := d.readStatus(); row.By != "alice" || row.Reason != stopReason || row.Until.IsZero() {
		runner.FailStep("expected a stop by alice with its reason and its end, found %+v", row)
	}
}

func (d *clusterDemo) prolongAsCarol() {
	d.BeginStep("carol: kubectl torpor extend " + clusterTarget + " --until " + extension.String())
	before := d.readStatus().Until
	d.PrintObserved("%s", d.as("carol", commandLimit, "extend", clusterTarget, "--until", extension.String()))
	d.Poll("the record", readyLimit, func(context.Context) {
		if row := d.readStatus(); !row.Until.After(before) || row.By != "alice" || row.UntilBy != "carol" {
			runner.FailStep("expected a stop by alice with a later end by carol, found %+v", row)
		}
	})
	d.PrintObserved("the stop is still alice's, and its end is carol's")
}

func (d *clusterDemo) awaitEnd() {
	d.BeginStep("The stop ends automatically")
	until := d.readStatus().Until
	d.Poll("the end of the stop", powerLimit, func(context.Context) { d.verifyInstancesAre("running") })
	if now := time.Now(); now.Before(until) {
		runner.FailStep("expected the cluster to stay stopped until %s, found its machines running at %s", until, now)
	}
	d.PrintObserved("the machines run again, %.0f s after the end of the stop", time.Since(until).Seconds())
	d.awaitPowerState("Running")
	if asked := d.kubectl("get", "cd", clusterName, "-o", "jsonpath={.spec.powerState}"); asked != "Hibernating" {
		runner.FailStep("expected spec.powerState unchanged, found %q", asked)
	}
	d.PrintObserved("spec.powerState still has the value that alice wrote: the end is computed")
}

func (d *clusterDemo) showHistory() {
	d.BeginStep("bob: kubectl torpor history " + clusterTarget)
	d.QuoteOutput(d.as("bob", commandLimit, "history", clusterTarget))
	var stops []struct {
		By        string `json:"by"`
		StartedBy string `json:"startedBy"`
	}
	runner.ExpectNoError(json.Unmarshal([]byte(d.as("bob", commandLimit, "history", clusterTarget, "-o", "json")), &stops))
	if len(stops) != 1 || stops[0].By != "alice" || !strings.HasSuffix(stops[0].StartedBy, "/until") {
		runner.FailStep("expected one stop by alice that ended automatically, found %+v", stops)
	}
}
