// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	defaultTimeout = 20 * time.Minute
	dryRunNone     = "none"
	dryRunServer   = "server"
)

// verb is a change that a command makes to a part.
type verb string

const (
	stopVerb    verb = "stop"
	startVerb   verb = "start"
	restartVerb verb = "restart"
	extendVerb  verb = "extend"
)

func (v verb) pastParticiple() string {
	switch v {
	case stopVerb:
		return "stopped"
	case extendVerb:
		return "extended"
	case startVerb, restartVerb:
		return string(v) + "ed"
	}
	panic("unknown verb " + v)
}

// verbCommand changes switches, and with --wait waits until the statuses report the change.
type verbCommand struct {
	*commands
	verb verb
	selection
	part, reason, until, dryRun, output, longText string
	waits                                         bool
	timeout                                       time.Duration
	// fieldManager is set by programs other than the plugin.
	fieldManager string
	// saidReason and saidUntil are true if --reason and --until are set.
	saidReason, saidUntil bool
	// namespaces are the namespaces whose objects are changed. The list is nil if the arguments name other objects.
	namespaces []string
}

func (a *commands) newStopCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: stopVerb, longText: `Stop objects: hibernate ClusterDeployments, end all instances of CFApps, or stop the part of a MySQLCluster's automation that --part specifies.
` + listWorkloads() + ` and the kinds of StopAdapters get an annotation, and the manager's feature workloads then stops them.
An object that is already stopped gets the new reason and end.
namespace/NAME stops everything in the namespace that can be stopped, wave by wave: in the waves of the Slumbers that select the objects, and other objects
in two waves, with the ` + kinds.JoinNames(kinds.ListWorkloads().FilterByWave(1).Plurals()) + ` in the second one. It waits for each wave, but for the last one only with --wait. Objects that are left out are listed.`}
	return v.newCommand("stop", "Stop objects, with a reason and an end", `  # Hibernate a cluster for the night
  kubectl torpor stop clusterdeployment/fleet --reason "no budget" --until 10h

  # Stop failover and repair of a MySQLCluster; return once it has reached a safe point
  kubectl torpor stop mysqlcluster/test --part clustering --reason "compare replicas" --wait

  # Scale a Deployment to zero for two hours, and then back
  kubectl torpor stop deployment/web --reason "no budget" --until 2h

  # Validate a stop of every app of a team
  kubectl torpor stop cfapp -l team=a --dry-run=server

  # Stop all Deployments and StatefulSets of the namespace
  kubectl torpor stop deploy,sts --all --until 12h

  # Stop everything in a namespace that can be stopped, and start exactly these objects again
  kubectl torpor stop namespace/dev --reason holidays --until monday
  kubectl torpor start namespace/dev

  # Stop the objects that kubectl has found
  kubectl get deploy -l team=a -o name | xargs kubectl torpor stop`)
}

func (a *commands) newStartCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: startVerb, longText: `Start stopped objects. The reason and the end of the stop are removed, and the record keeps them.
The manager checks a start of clustering: it refuses a start that would do harm, and --wait returns 4.
namespace/NAME starts the objects that a stop of the namespace has stopped, in the reverse order of its waves.`}
	return v.newCommand("start", "Start stopped objects", `  # Start an app, and return when all its instances are ready
  kubectl torpor start cfapp/shop --wait

  # Resume all clusters of a team
  kubectl torpor start clusterdeployment -l team=a -A

  # Start the objects that a stop of the namespace has stopped
  kubectl torpor start namespace/dev`)
}

func (a *commands) newHibernateCommand() *cobra.Command {
	v := &verbCommand{
		commands: a, verb: stopVerb, selection: selection{kindName: "clusterdeployment"},
		longText: "Hibernate clusters: stop the machines of each cluster in its cloud.",
	}
	return v.newCommand("hibernate", "Hibernate clusters", `  # Hibernate a cluster for the weekend
  kubectl torpor hibernate fleet --reason weekend --until 60h

  # Hibernate all clusters of a team, and return when their machines are stopped
  kubectl torpor hibernate -l team=a --wait --timeout 30m`)
}

func (a *commands) newResumeCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: startVerb, selection: selection{kindName: "clusterdeployment"}, longText: `Resume clusters: start the machines of each, and check and approve the certificate requests of its nodes.
This includes clusters that hibernate because of spec.hibernateAfter.`}
	return v.newCommand("resume", "Resume clusters", `  # Resume a cluster, and return when it can be used
  kubectl torpor resume fleet --wait`)
}

func (a *commands) newRestartCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: restartVerb, longText: "Restart apps: each gets a new revision, whose instances replace the old ones."}
	return v.newCommand("restart", "Restart apps with a new revision", `  # Restart an app, and return when no instance of the old revision is left
  kubectl torpor restart cfapp/shop --wait`)
}

func (a *commands) newExtendCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: extendVerb, longText: `Postpone the end of manual stops. Nothing is changed if a stop has already ended or would end sooner; stop sets an earlier end.`}
	return v.newCommand("extend", "Postpone the end of manual stops", `  # End the stop two hours from now
  kubectl torpor extend cfapp/shop --until 2h`)
}

func (v *verbCommand) newCommand(name, short, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " " + v.describeObjects(), Short: short, Long: v.longText, Example: example,
		ValidArgsFunction: v.completeObjects, RunE: v.run,
	}
	f := cmd.Flags()
	v.addFlags(f)
	f.StringVar(&v.dryRun, "dry-run", dryRunNone, "server: the API server validates the change and does not store it; none: the change is stored")
	f.StringVarP(&v.output, "output", "o", "", "json, yaml, name, or empty for text")
	if v.kindName == "" && v.verb != restartVerb {
		f.StringVar(&v.part, "part", "", "part of a MySQLCluster: clustering or reconciliation")
	}
	if v.verb == stopVerb || v.verb == extendVerb {
		f.StringVar(&v.reason, "reason", "", "reason for the stop, as one sentence")
		f.StringVar(&v.until, "until", "", "when the stop ends automatically: a time such as 18:00, tomorrow, monday or 2026-11-20T22:00:00Z, or a duration from now such as 8h")
	}
	if v.verb != extendVerb {
		f.BoolVar(&v.waits, waitFlag, false, "wait until the statuses report the requested state")
		f.DurationVar(&v.timeout, timeoutFlag, defaultTimeout, "how long to wait for all objects; then the exit code is 3")
	}
	completion.OfferValues(cmd, "dry-run", dryRunServer, dryRunNone)
	completion.OfferValues(cmd, "until", moco.UntilWords()...)
	completion.OfferValues(cmd, "output", "json", "yaml", "name")
	completion.OfferValues(cmd, "part", partNames()...)
	return cmd
}

func (v *verbCommand) validateFlags(cmd *cobra.Command) error {
	f := cmd.Flags()
	v.saidReason, v.saidUntil = f.Changed("reason"), f.Changed("until")
	switch {
	case validateDryRun(v.dryRun) != nil:
		return validateDryRun(v.dryRun)
	case v.waits && v.dryRun == dryRunServer:
		return exit.WrongUsage("--wait: expected no --dry-run=server, which changes nothing, found both flags")
	case f.Changed(timeoutFlag) && !v.waits && v.namespaces == nil:
		return exit.WrongUsage("--timeout: expected --wait as well, found none")
	case (v.waits || f.Changed(timeoutFlag)) && v.timeout <= 0:
		return exit.WrongUsage("--timeout: expected a duration above zero such as 5m, found %s", v.timeout)
	case v.verb == extendVerb && !v.saidUntil:
		return exit.WrongUsage("expected --until with the new end, found none")
	}
	if v.saidUntil {
		until, err := moco.ResolveUntil(v.Err, v.until, v.clock.Now())
		if err != nil {
			return err
		}
		if v.until = until; v.namespaces != nil {
			v.fixEnd()
		}
	}
	return validateOutput(v.output, "json", "yaml", "name")
}

func validateDryRun(value string) error {
	if value == dryRunNone || value == dryRunServer {
		return nil
	}
	return exit.WrongUsage("--dry-run: expected server or none, found %q", value)
}

// verbResult is the result for one object; -o json and -o yaml print a list of these.
type verbResult struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// DisplayName is the display name of the object. It is empty if the kind has no display names.
	DisplayName string `json:"displayName,omitempty"`
	Part        string `json:"part"`
	// Wanted is stopped, started, restarted or extended.
	Wanted string `json:"wanted"`
	// Changed is true if the object was written, or would have been without --dry-run.
	Changed bool `json:"changed"`
	// Reached is true if the requested state was reached. It is set only if the command waited.
	Reached *bool  `json:"reached,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Until   string `json:"until,omitempty"`
	Error   string `json:"error,omitempty"`
	target  target
	before  stopRow
	// revision is the revision that a restart began.
	revision int64
	// wasAlready is true if the switch was already in the requested position.
	wasAlready bool
	err        error
}

// run writes all changes before it waits, so that a slow object does not delay other objects. With namespaces, it
// writes and waits wave by wave.
func (v *verbCommand) run(cmd *cobra.Command, args []string) error {
	if err := v.readNamespaces(cmd, args); err != nil {
		return err
	}
	if err := v.validateFlags(cmd); err != nil {
		return err
	}
	kube, err := v.connect()
	if err != nil {
		return err
	}
	ctx, cancel := v.limit(cmd)
	defer cancel()
	waves, err := v.findTargetWaves(ctx, cmd, kube, args)
	if err != nil {
		return err
	}
	if v.namespaces != nil {
		return v.report(v.changeWaves(ctx, kube, waves))
	}
	results := []*verbResult{} // Programs expect an empty list instead of null.
	for _, t := range slices.Concat(waves...) {
		r := v.change(ctx, kube, t)
		if results = append(results, r); !v.waits {
			v.printResult(r)
		}
	}
	v.warnOfResults(ctx, kube, results)
	if v.waits {
		waits, end := context.WithTimeout(ctx, v.timeout)
		defer end()
		for _, r := range results {
			v.waitForStatus(waits, kube, r)
			v.printResult(r)
		}
	}
	return v.report(results)
}

// report prints the results as JSON or YAML if requested, and returns the errors of all results.
func (v *verbCommand) report(results []*verbResult) error {
	var errs []error
	for _, r := range results {
		if r.err != nil {
			r.Error = r.err.Error()
		}
		errs = append(errs, r.err)
	}
	if v.output == "json" || v.output == "yaml" {
		errs = append(errs, v.writeData(v.output, results))
	}
	return errors.Join(errs...)
}

// readNamespaces reads from the arguments the namespaces whose objects the verb changes.
func (v *verbCommand) readNamespaces(cmd *cobra.Command, args []string) (err error) {
	if v.kindName != "" || v.verb == restartVerb || v.isSet(cmd.Flags()) {
		return nil
	}
	if v.namespaces, err = parseNamespaces(args); err == nil && v.namespaces != nil && v.part != "" {
		return exit.WrongUsage("--part: expected objects with parts, found namespaces")
	}
	return err
}

// limit returns the context of the verb. A verb for namespaces waits between waves, even without --wait.
func (v *verbCommand) limit(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	if v.namespaces != nil {
		return context.WithTimeout(cmd.Context(), commandTimeout+v.timeout)
	}
	return limitCommand(cmd)
}

// findTargetWaves returns the objects that the verb changes. If the arguments contain no namespaces, all objects form
// one wave.
func (v *verbCommand) findTargetWaves(ctx context.Context, cmd *cobra.Command, kube *kubeClient, args []string) ([][]target, error) {
	if v.namespaces != nil {
		return v.findWaves(ctx, kube)
	}
	targets, err := v.findTargets(ctx, cmd, kube, args)
	return [][]target{targets}, err
}

// findTargets returns the objects that the arguments and flags define, with the part that the verb changes.
func (v *verbCommand) findTargets(ctx context.Context, cmd *cobra.Command, kube *kubeClient, args []string) ([]target, error) {
	targets, err := v.selection.findTargets(ctx, cmd, kube, args)
	if err != nil {
		return nil, err
	}
	for i := range targets {
		if err := v.choosePart(&targets[i]); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// choosePart determines the part, and returns an error if the kind does not support the verb.
func (v *verbCommand) choosePart(t *target) error {
	switch parts := t.kind.PartNames(); {
	case v.kindName != "" && !t.kind.HasName(v.kindName):
		return exit.WrongUsage("expected the name of a %s, found a %s", v.kindName, t.kind.Names()[0])
	case v.verb == restartVerb && !canRestart(t.kind):
		return exit.WrongUsage("expected a kind that restarts, which is cfapp, found %s", t.kind.Names()[0])
	case v.part == "" && len(parts) == 1:
		t.part = parts[0]
	default:
		for _, p := range parts {
			if p == v.part {
				t.part = p
				return nil
			}
		}
		return exit.WrongUsage("--part: expected %s for a %s, found %q", strings.Join(parts, " or "), t.kind.Names()[0], v.part)
	}
	return nil
}
