// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
)

const (
	defaultTimeout = 20 * time.Minute
	dryRunNone     = "none"
	dryRunServer   = "server"
)

// verb is what is done to the switch of a part.
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

// verbCommand changes switches, and may wait until the statuses say so.
type verbCommand struct {
	*commands
	verb verb
	// kindName is that of a command which is about one kind; its arguments are names.
	kindName                                                string
	part, selector, reason, until, dryRun, output, longText string
	isEverywhere, waits                                     bool
	timeout                                                 time.Duration
	// fieldManager is that of another program than the plugin.
	fieldManager string
	// saidReason and saidUntil are whether the flags are given.
	saidReason, saidUntil bool
}

func (a *commands) newStopCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: stopVerb, longText: `Stop objects: a ClusterDeployment hibernates, a CFApp has no instances, and one automation of a MySQLCluster rests, which --part names.
Of Deployments, StatefulSets, CronJobs and the kinds of StopAdapters it is asked by an annotation, by which the manager's feature workloads goes.
What is stopped already gets the reason and the end that are given.`}
	return v.newCommand("stop", "Stop objects, and say why and until when", `  # A cluster hibernates for the night
  kubectl torpor stop clusterdeployment/fleet --reason "no budget" --until 10h

  # Failover and repair of a MySQLCluster rest; return when it has come to a safe point
  kubectl torpor stop mysqlcluster/test --part clustering --reason "compare replicas" --wait

  # A Deployment has no replicas for two hours, and then those that it had
  kubectl torpor stop deployment/web --reason "no budget" --until 2h

  # Every app of a team, as the API server would take it
  kubectl torpor stop cfapp -l team=a --dry-run=server`)
}

func (a *commands) newStartCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: startVerb, longText: `Start what is stopped. What was said of the stop goes with it, and the record keeps it.
The manager judges a start of clustering: one that would do harm is refused, and --wait returns 4.`}
	return v.newCommand("start", "Start what is stopped", `  # An app, and return when all its instances are ready
  kubectl torpor start cfapp/shop --wait

  # All clusters of a team
  kubectl torpor start clusterdeployment -l team=a -A`)
}

func (a *commands) newHibernateCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: stopVerb, kindName: "clusterdeployment", longText: "Let clusters hibernate: the machines of each are stopped at its cloud."}
	return v.newCommand("hibernate", "Let clusters hibernate", `  # For the weekend
  kubectl torpor hibernate fleet --reason weekend --until 60h

  # All clusters of a team, and return when their machines are stopped
  kubectl torpor hibernate -l team=a --wait --timeout 30m`)
}

func (a *commands) newResumeCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: startVerb, kindName: "clusterdeployment", longText: `Let clusters resume: the machines of each are started, and its nodes are let in.
One that sleeps because spec.hibernateAfter was over resumes, too.`}
	return v.newCommand("resume", "Let clusters resume", `  # Return when it can be used
  kubectl torpor resume fleet --wait`)
}

func (a *commands) newRestartCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: restartVerb, longText: "Restart apps: each gets a new revision, to which its instances roll over."}
	return v.newCommand("restart", "Restart apps by a new revision", `  # One app, and return when no instance of the old revision is left
  kubectl torpor restart cfapp/shop --wait`)
}

func (a *commands) newExtendCommand() *cobra.Command {
	v := &verbCommand{commands: a, verb: extendVerb, longText: `Let stops end later than they would. Nothing is written if a stop has ended meanwhile, or would end sooner; stop sets an earlier end.`}
	return v.newCommand("extend", "Let stops end later", `  # Two more hours from now
  kubectl torpor extend cfapp/shop --until 2h`)
}

func (v *verbCommand) newCommand(name, short, example string) *cobra.Command {
	objects := "KIND/NAME... | KIND -l SELECTOR"
	if v.kindName != "" {
		objects = "NAME... | -l SELECTOR"
	}
	cmd := &cobra.Command{
		Use: fmt.Sprintf("%s (%s) [-A]", name, objects), Short: short, Long: v.longText, Example: example,
		ValidArgsFunction: v.completeObjects, RunE: v.run,
	}
	f := cmd.Flags()
	f.BoolVarP(&v.isEverywhere, "all-namespaces", "A", false, "with --selector: the objects of all namespaces")
	f.StringVarP(&v.selector, "selector", "l", "", "labels of the objects, such as team=a, instead of names")
	f.StringVar(&v.dryRun, "dry-run", dryRunNone, "server: the API server judges the change and keeps nothing of it; none")
	f.StringVarP(&v.output, "output", "o", "", "json, yaml, or empty for text")
	if v.kindName == "" && v.verb != restartVerb {
		f.StringVar(&v.part, "part", "", "of a MySQLCluster: clustering or reconciliation")
	}
	if v.verb == stopVerb || v.verb == extendVerb {
		f.StringVar(&v.reason, "reason", "", "why, in a sentence for people")
		f.StringVar(&v.until, "until", "", "when the stop ends by itself: a time such as 2026-11-20T22:00:00Z, or a duration from now such as 8h")
	}
	if v.verb != extendVerb {
		f.BoolVar(&v.waits, waitFlag, false, "return when the statuses report it")
		f.DurationVar(&v.timeout, timeoutFlag, defaultTimeout, "how long to wait for all of them; then the exit code is 3")
	}
	completion.OfferValues(cmd, "dry-run", dryRunServer, dryRunNone)
	completion.OfferValues(cmd, "output", "json", "yaml")
	completion.OfferValues(cmd, "part", clusteringPart, reconciliationPart)
	return cmd
}

func (v *verbCommand) validateFlags(cmd *cobra.Command) error {
	f := cmd.Flags()
	v.saidReason, v.saidUntil = f.Changed("reason"), f.Changed("until")
	switch {
	case v.dryRun != dryRunNone && v.dryRun != dryRunServer:
		return exit.WrongUsage("--dry-run: expected server or none, found %q", v.dryRun)
	case v.waits && v.dryRun == dryRunServer:
		return exit.WrongUsage("--wait: expected no --dry-run with it, which changes nothing; found both")
	case f.Changed(timeoutFlag) && !v.waits:
		return exit.WrongUsage("--timeout: expected --wait with it, found none")
	case v.waits && v.timeout <= 0:
		return exit.WrongUsage("--timeout: expected a duration above zero such as 5m, found %s", v.timeout)
	case v.verb == extendVerb && !v.saidUntil:
		return exit.WrongUsage("expected --until with the new end, found none")
	}
	if v.saidUntil {
		if _, err := moco.ParseUntil(v.until, v.clock.Now()); err != nil {
			return err
		}
	}
	return validateOutput(v.output, false)
}

// verbResult is what became of one object; -o json and -o yaml print a list of these.
type verbResult struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Part      string `json:"part"`
	// Wanted is stopped, started, restarted or extended.
	Wanted string `json:"wanted"`
	// Changed is whether something was written, or would have been without --dry-run.
	Changed bool `json:"changed"`
	// Reached is only there with --wait.
	Reached *bool  `json:"reached,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Until   string `json:"until,omitempty"`
	Error   string `json:"error,omitempty"`
	target  target
	before  stopRow
	// revision is the one that a restart has begun.
	revision int64
	// wasAlready says that the switch was as wished.
	wasAlready bool
	err        error
}

// run writes all changes before it waits, so that one slow object holds up no other.
func (v *verbCommand) run(cmd *cobra.Command, args []string) error {
	if err := v.validateFlags(cmd); err != nil {
		return err
	}
	kube, err := v.connect()
	if err != nil {
		return err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	targets, err := v.findTargets(ctx, cmd, kube, args)
	if err != nil {
		return err
	}
	results := []*verbResult{} // Programs read an empty list, and not null.
	for _, t := range targets {
		r := v.change(ctx, kube, t)
		if results = append(results, r); !v.waits {
			v.printResult(r)
		}
	}
	if v.waits {
		waits, end := context.WithTimeout(ctx, v.timeout)
		defer end()
		for _, r := range results {
			v.waitForStatus(waits, kube, r)
			v.printResult(r)
		}
	}
	var errs []error
	for _, r := range results {
		if r.err != nil {
			r.Error = r.err.Error()
		}
		errs = append(errs, r.err)
	}
	if v.output != "" {
		errs = append(errs, v.writeData(v.output, results))
	}
	return errors.Join(errs...)
}

// findTargets returns what the arguments and flags name.
func (v *verbCommand) findTargets(ctx context.Context, cmd *cobra.Command, kube *kubeClient, args []string) ([]target, error) {
	bySelector := cmd.Flags().Changed("selector")
	switch {
	case v.isEverywhere && !bySelector:
		return nil, exit.WrongUsage("--all-namespaces: expected --selector with it, found none")
	case bySelector:
		return v.selectTargets(ctx, kube, args)
	case len(args) == 0:
		return nil, exit.WrongUsage("expected the names of objects or --selector, found neither")
	}
	var targets []target
	for _, arg := range args {
		if v.kindName != "" && !strings.Contains(arg, "/") {
			arg = v.kindName + "/" + arg
		}
		t, err := kube.findTarget(ctx, arg)
		if err != nil {
			return nil, err
		}
		if err := v.choosePart(&t); err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (v *verbCommand) selectTargets(ctx context.Context, kube *kubeClient, args []string) ([]target, error) {
	selector, err := parseSelector(v.selector, true)
	if err != nil {
		return nil, err
	}
	if v.kindName != "" && len(args) == 0 {
		args = []string{v.kindName}
	}
	if len(args) != 1 || v.kindName != "" && args[0] != v.kindName {
		return nil, exit.WrongUsage("expected names or --selector, found both; with --selector a kind is named alone")
	}
	k, err := kube.findKind(ctx, args[0])
	if err != nil {
		return nil, err
	}
	chosen := target{kind: k}
	if err := v.choosePart(&chosen); err != nil {
		return nil, err
	}
	if v.isEverywhere {
		kube.namespace = metav1.NamespaceAll
	}
	var targets []target
	isServed, err := kube.eachObject(ctx, k, selector, func(obj client.Object) {
		t := chosen
		t.namespace, t.name = obj.GetNamespace(), obj.GetName()
		targets = append(targets, t)
	})
	switch {
	case errors.Is(err, errForbidden):
		return nil, fmt.Errorf("expected the right to list %ss in %s, found none; ask for it or choose another namespace with -n", k.gvk.Kind, kube.namespaceText())
	case err != nil:
		return nil, err
	case !isServed:
		return nil, fmt.Errorf("expected the API server to serve %s, found that it does not; install the CRD", k.gvk.GroupVersion())
	case len(targets) == 0:
		fmt.Fprintf(v.Err, "No %s with these labels found in %s.\n", k.gvk.Kind, kube.namespaceText())
	}
	return targets, nil
}

// choosePart finds out which switch is meant, and whether the kind can do what is asked for.
func (v *verbCommand) choosePart(t *target) error {
	switch parts := t.kind.parts; {
	case v.kindName != "" && !t.kind.hasName(v.kindName):
		return exit.WrongUsage("expected the name of a %s, found a %s", v.kindName, t.kind.names[0])
	case v.verb == restartVerb && t.kind.restart == nil:
		return exit.WrongUsage("expected a kind that restarts, which is cfapp, found %s", t.kind.names[0])
	case v.part == "" && len(parts) == 1:
		t.part = parts[0]
	default:
		for _, p := range parts {
			if p == v.part {
				t.part = p
				return nil
			}
		}
		return exit.WrongUsage("--part: expected %s for a %s, found %q", strings.Join(parts, " or "), t.kind.names[0], v.part)
	}
	return nil
}
