// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/stopcheck"
)

// planCommand says what a verb would do, and changes nothing.
type planCommand struct{ *verbCommand }

// plannedVerbs are the verbs that can be planned, and the kind that each is about alone.
func plannedVerbs() map[string]verbCommand {
	return map[string]verbCommand{
		"stop": {verb: stopVerb}, "start": {verb: startVerb},
		"hibernate": {verb: stopVerb, kindName: "clusterdeployment"}, "resume": {verb: startVerb, kindName: "clusterdeployment"},
	}
}

func (a *commands) newPlanCommand() *cobra.Command {
	p := planCommand{&verbCommand{commands: a, verb: stopVerb}}
	cmd := &cobra.Command{
		Use:   "plan [stop | start | hibernate | resume] (KIND/NAME... | KIND -l SELECTOR) [-A]",
		Short: "What a stop or a start would do, and what it may run into",
		Long: `What a stop or a start would do, and what it may run into. Nothing is changed, and no cluster is dialled: what is
said of one is what the manager has found there last, about an hour ago at most.
A finding has a stable code, and blocks or warns. Where one blocks the exit code is 4. No verb stops because of a finding.`,
		Example: `  # What a hibernation over the weekend may run into
  kubectl torpor plan hibernate fleet --until 60h

  # Of a MySQLCluster a part is planned
  kubectl torpor plan stop mysqlcluster/test --part clustering

  # All clusters of a team, for a program
  kubectl torpor plan clusterdeployment -l team=a -o json`,
		ValidArgsFunction: p.complete, RunE: p.run,
	}
	f := cmd.Flags()
	f.BoolVarP(&p.isEverywhere, "all-namespaces", "A", false, "with --selector: the objects of all namespaces")
	f.StringVarP(&p.selector, "selector", "l", "", "labels of the objects, such as team=a, instead of names")
	f.StringVarP(&p.output, "output", "o", "", "json, yaml, or empty for text")
	f.StringVar(&p.part, "part", "", "of a MySQLCluster: clustering or reconciliation")
	f.StringVar(&p.until, "until", "", "when the stop is to end by itself: a time such as 2026-11-20T22:00:00Z, or a duration from now such as 8h")
	completion.OfferValues(cmd, "output", "json", "yaml")
	completion.OfferValues(cmd, "part", clusteringPart, reconciliationPart)
	return cmd
}

// chooseVerb takes the verb from the arguments; without one it is a stop.
func (p planCommand) chooseVerb(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	chosen, isVerb := plannedVerbs()[args[0]]
	if !isVerb {
		return args
	}
	p.verb, p.kindName = chosen.verb, chosen.kindName
	return args[1:]
}

// complete offers the verbs before anything else.
func (p planCommand) complete(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	objects, directive := p.completeObjects(cmd, p.chooseVerb(args), toComplete)
	if len(args) > 0 {
		return objects, directive
	}
	return append(slices.Sorted(maps.Keys(plannedVerbs())), objects...), directive
}

// plannedObject is what is planned of one object; -o json and -o yaml print a list of these.
type plannedObject struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Part      string `json:"part"`
	// Verb is stop or start, and State what the object is now.
	Verb  string `json:"verb"`
	State string `json:"state"`
	// Effects are what happens, in sentences.
	Effects []string `json:"effects"`
	// Until is when a stop ends by itself, and WakeBy when a cluster has to be awake.
	Until  *metav1.Time `json:"until,omitempty"`
	WakeBy *metav1.Time `json:"wakeBy,omitempty"`
	// Findings are what it may run into, the worst first.
	Findings []stopcheck.Finding `json:"findings"`
	target   target
}

func (p planCommand) run(cmd *cobra.Command, args []string) error {
	args = p.chooseVerb(args)
	until, err := p.parseUntil()
	if err != nil {
		return err
	}
	kube, err := p.connect()
	if err != nil {
		return err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	targets, err := p.findTargets(ctx, cmd, kube, args)
	if err != nil {
		return err
	}
	var planned []plannedObject
	var errs []error
	for _, t := range targets {
		object, err := p.plan(ctx, kube, t, until)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		planned = append(planned, object)
		errs = append(errs, object.refusal())
	}
	return errors.Join(append([]error{p.write(planned)}, errs...)...)
}

func (p planCommand) parseUntil() (time.Time, error) {
	switch err := validateOutput(p.output, false); {
	case err != nil:
		return time.Time{}, err
	case p.until == "":
		return time.Time{}, nil
	case p.verb == startVerb:
		return time.Time{}, exit.WrongUsage("--until: expected no end of a start, found %q", p.until)
	}
	return moco.ParseUntil(p.until, p.clock.Now())
}

func (p planCommand) plan(ctx context.Context, kube *kubeClient, t target, until time.Time) (plannedObject, error) {
	if t.kind.plan == nil {
		return plannedObject{}, unplannedError(t)
	}
	obj, err := kube.getObject(ctx, t)
	if err != nil {
		return plannedObject{}, err
	}
	row := t.findRow(obj)
	says := t.kind.annotationsOf(t.part)
	request := stopcheck.PlanRequest{IsStart: p.verb == startVerb, Now: p.clock.Now(), Until: until, Record: row.stops, UntilAnnotation: says.UntilAnnotation(obj.GetAnnotations())}
	made, err := t.kind.plan(ctx, kube, planSubject{obj: obj, target: t, startCommand: row.startCommand()}, request)
	if err != nil {
		return plannedObject{}, err
	}
	planned := plannedObject{
		Namespace: t.namespace, Kind: t.kind.gvk.Kind, Name: t.name, Part: t.part, Verb: string(p.verb), State: row.State,
		Effects: made.Effects, WakeBy: made.WakeBy, Findings: append([]stopcheck.Finding{}, made.Findings...), target: t,
	}
	switch {
	case p.verb == startVerb:
	case !until.IsZero():
		planned.Until = new(metav1.NewTime(until.UTC()))
	default:
		planned.Until = row.Until
	}
	return planned, nil
}

// unplannedError says that nobody knows what a stop of a kind runs into.
func unplannedError(t target) error {
	var planned []string
	for _, k := range stoppableKinds() {
		if k.plan != nil {
			planned = append(planned, k.names[0])
		}
	}
	return exit.WrongUsage("%s: expected a kind that can be planned, which are %s, found %s; stop it with --dry-run=server to see what would be written",
		t, strings.Join(planned, ", "), t.kind.names[0])
}

// refusal is the error of a plan that has something which blocks.
func (o plannedObject) refusal() error {
	if !stopcheck.HasBlocking(o.Findings) {
		return nil
	}
	var codes []string
	for _, f := range o.Findings {
		if f.Severity == stopcheck.Blocking {
			codes = append(codes, f.Code)
		}
	}
	return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected nothing that blocks the %s, found %s", o.target, o.Verb, strings.Join(codes, ", "))}
}

func (p planCommand) write(planned []plannedObject) error {
	if p.output != "" {
		return p.writeData(p.output, append([]plannedObject{}, planned...))
	}
	for i, o := range planned {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		if err := p.writePlan(o); err != nil {
			return err
		}
	}
	return nil
}

// writePlan prints what happens, and then a line for each finding.
func (p planCommand) writePlan(o plannedObject) error {
	fmt.Fprintf(p.Out, "%s %s in namespace %s, which is %s\n", o.Verb, o.target, o.Namespace, formatCell(o.State))
	for _, effect := range o.Effects {
		fmt.Fprintf(p.Out, "  %s\n", formatCell(effect))
	}
	if o.WakeBy != nil {
		fmt.Fprintf(p.Out, "  It has to be awake by %s, before its certificates expire\n", formatTime(o.WakeBy))
	}
	if len(o.Findings) == 0 {
		fmt.Fprintln(p.Out, "Nothing was found that it may run into")
		return nil
	}
	table := newAlignedTable(p.Out)
	rows := [][]string{{"SEVERITY", "CODE", "OBJECTS", "FOUND"}}
	for _, f := range o.Findings {
		rows = append(rows, []string{string(f.Severity), f.Code, formatObjects(f), formatCell(f.Message)})
	}
	return table.write(rows)
}

// formatObjects names the objects of a finding; those that are whole sentences are in the message.
func formatObjects(f stopcheck.Finding) string {
	if slices.ContainsFunc(f.Objects, func(o string) bool { return strings.Contains(o, " ") }) {
		return "-"
	}
	text := strings.Join(f.Objects, ",")
	if more := f.Count - len(f.Objects); more > 0 && len(f.Objects) > 0 {
		text += fmt.Sprintf(",+%d", more)
	}
	return formatCell(text)
}
