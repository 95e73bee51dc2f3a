// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// readyHub returns the observation of a hub with an installation that works.
func readyHub() admincheck.Observed {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	return admincheck.Observed{
		Version: "v1.36.3", Served: append(admincheck.NeededResources(), admincheck.RecordResource()), Namespace: "torpor-system", Acting: "torpor-system",
		RecordPolicies: []string{"torpor-workloads-record"}, Deployment: &admincheck.ManagerDeployment{Desired: 2, Ready: 2}, Now: at, ServerTime: at,
	}
}

func TestCheckWaitsForAnInstallation(t *testing.T) {
	t.Parallel()
	started, elsewhere := readyHub(), readyHub()
	started.Deployment, started.Acting = &admincheck.ManagerDeployment{Desired: 2, Ready: 1}, ""
	elsewhere.Acting = "elsewhere"
	waiting := readyHub()
	waiting.Acting = ""
	bare := readyHub()
	bare.Deployment, bare.Acting = nil, ""
	unreachable := errors.New("connection refused")
	for name, row := range map[string]struct {
		seen     []any // The results of successive checks: observations or errors; the last one is repeated.
		code     exit.Code
		progress string
		took     time.Duration
		says     string
	}{
		"a working installation: the command returns immediately": {seen: []any{readyHub()}, code: exit.Done},
		"a manager that is starting: the command waits, and prints a line for each change": {
			seen: []any{unreachable, unreachable, bare, started, waiting, readyHub()}, code: exit.Done, took: 10 * time.Second,
			progress: "waiting: connection refused\nwaiting: no Deployment of the manager in namespace torpor-system\n" +
				"waiting: 1 of 2 Pods of the manager are ready\nwaiting: the manager does not change objects yet, because it does not hold the Lease of the installation\n",
		},
		"another installation that stays active: the command times out": {
			seen: []any{elsewhere}, code: exit.TimedOut, took: time.Minute, says: "timed out: expected an installation that works, found: installation: expected the installation in namespace",
			progress: "waiting: installation: expected the installation in namespace torpor-system to be active, found that the installation in namespace elsewhere is active\n",
		},
		"a hub that never answers: the command times out": {
			seen: []any{unreachable}, code: exit.TimedOut, took: time.Minute, says: "found: connection refused", progress: "waiting: connection refused\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out, progress bytes.Buffer
				began, next := time.Now(), 0
				r := checkRun{out: &out, progress: &progress, output: "json", waits: true, timeout: time.Minute, observe: func(context.Context) (admincheck.Observed, error) {
					one := row.seen[min(next, len(row.seen)-1)]
					next++
					if err, isError := one.(error); isError {
						return admincheck.Observed{}, err
					}
					return one.(admincheck.Observed), nil
				}}
				err := r.run(t.Context())
				if found := exit.CodeOf(err); found != row.code || err != nil && !strings.Contains(err.Error(), row.says) {
					t.Errorf("expected exit code %d and %q, found %d and %v", row.code, row.says, found, err)
				}
				if took := time.Since(began); progress.String() != row.progress || took != row.took {
					t.Errorf("expected %q after %s, found %q after %s", row.progress, row.took, progress.String(), took)
				}
				var findings []admincheck.Finding
				if isSeen := name != "a hub that never answers: the command times out"; isSeen != (json.Unmarshal(out.Bytes(), &findings) == nil && len(findings) > 0) {
					t.Errorf("expected one list of findings if there was an answer, found %q", out.String())
				}
			})
		})
	}
}

func TestCheckFailsAtOnceWithoutWait(t *testing.T) {
	t.Parallel()
	elsewhere := readyHub()
	elsewhere.Acting = "elsewhere"
	for name, row := range map[string]struct {
		seen admincheck.Observed
		err  error
		code exit.Code
	}{
		"a ready hub: exit code 0":                           {readyHub(), nil, exit.Done},
		"another active installation: the exit code Refused": {elsewhere, nil, exit.Refused},
		"an unreachable hub: the exit code Failed":           {admincheck.Observed{}, errors.New("connection refused"), exit.Failed},
	} {
		r := checkRun{out: &bytes.Buffer{}, observe: func(context.Context) (admincheck.Observed, error) { return row.seen, row.err }}
		if found := exit.CodeOf(r.run(t.Context())); found != row.code {
			t.Errorf("%s: expected exit code %d, found %d", name, row.code, found)
		}
	}
	for _, args := range [][]string{{"-o", "yaml"}, {"--timeout", "1m"}, {"--wait", "--timeout", "0s"}} {
		cmd := checkCommand()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if found := exit.CodeOf(cmd.ExecuteContext(t.Context())); found != exit.Usage {
			t.Errorf("%q: expected wrong usage, found exit code %d", args, found)
		}
	}
}
