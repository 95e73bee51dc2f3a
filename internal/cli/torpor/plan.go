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
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// planCommand describes the effects of a verb without changing anything.
type planCommand struct{ *verbCommand }

// plannedVerbs returns the verbs that can be planned; kindName is set for a verb of one kind.
func plannedVerbs() map[string]verbCommand {
	ofClusters := selection{kindName: "clusterdeployment"}
	return map[string]verbCommand{
		"stop": {verb: stopVerb}, "start": {verb: startVerb},
		"hibernate": {verb: stopVerb, selection: ofClusters}, "resume": {verb: startVerb, selection: ofClusters},
	}
}

func (a *commands) newPlanCommand() *cobra.Command {
	p := planCommand{&verbCommand{commands: a, verb: stopVerb}}
	cmd := &cobra.Command{
		Use:   "plan [stop | start | hibernate | resume] " + p.describeObjects(),
		Short: "Show the effects of a stop or a start, and the problems that may affect it",
		Long: `Show the effects of a stop or a start, and the problems that may affect it. Nothing is changed, and no cluster is contacted: the
findings of a cluster are those of the manager's last survey. A running cluster is surveyed about once an hour.
A finding has a stable code, and blocks or warns. If a finding blocks, the exit code is 4. Findings do not prevent a verb from running.`,
		Example: `  # Plan a hibernation over the weekend
  kubectl torpor plan hibernate fleet --until 60h

  # Plan the stop of one part of a MySQLCluster
  kubectl torpor plan stop mysqlcluster/test --part clustering

  # Plan the stop of everything in a namespace
  kubectl torpor plan namespace/dev

  # Plan the stop of all clusters of a team, for a program
  kubectl torpor plan clusterdeployment -l team=a -o json`,
		ValidArgsFunction: p.complete, RunE: p.run,
	}
	f := cmd.Flags()
	p.addFlags(f)
	f.StringVarP(&p.output, "output", "o", "", "json, yaml, or empty for text")
	f.StringVar(&p.part, "part", "", "part of a MySQLCluster: clustering or reconciliation")
	f.StringVar(&p.until, "until", "", "when the stop is to end automatically: a time such as 18:00, tomorrow, monday or 2026-11-20T22:00:00Z, or a duration from now such as 8h")
	completion.OfferValues(cmd, "until", moco.UntilWords()...)
	completion.OfferValues(cmd, "output", "json", "yaml")
	completion.OfferValues(cmd, "part", partNames()...)
	return cmd
}

// chooseVerb reads the verb from the first argument, where stop is the default, and returns the remaining arguments.
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

// complete offers the verbs before the objects.
func (p planCommand) complete(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	objects, directive := p.completeObjects(cmd, p.chooseVerb(args), toComplete)
	if len(args) > 0 {
		return objects, directive
	}
	return append(slices.Sorted(maps.Keys(plannedVerbs())), objects...), directive
}

// plannedObject is the plan of one object; -o json and -o yaml print a list of these.
type plannedObject struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// DisplayName is the display name of the object. It is empty if the kind has no display names.
	DisplayName string `json:"displayName,omitempty"`
	Part        string `json:"part"`
	// Verb is stop or start, and State is the current state of the object.
	Verb  string `json:"verb"`
	State string `json:"state"`
	// Effects are sentences that describe what happens.
	Effects []string `json:"effects"`
	// Until is when the stop ends automatically, and WakeBy is when a cluster must be running again.
	Until  *metav1.Time `json:"until,omitempty"`
	WakeBy *metav1.Time `json:"wakeBy,omitempty"`
	// Findings are the predicted problems, the worst first.
	Findings []preflight.Finding `json:"findings"`
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
	if err := p.readNamespaces(cmd, args); err != nil {
		return err
	}
	waves, err := p.findTargetWaves(ctx, cmd, kube, args)
	if err != nil {
		return err
	}
	var planned []plannedObject
	var errs []error
	for _, t := range slices.Concat(waves...) {
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
	switch err := validateOutput(p.output, "json", "yaml"); {
	case err != nil:
		return time.Time{}, err
	case p.until == "":
		return time.Time{}, nil
	case p.verb == startVerb:
		return time.Time{}, exit.WrongUsage("--until: expected no end for a start, found %q", p.until)
	}
	now := p.clock.Now()
	until, err := moco.ResolveUntil(p.Err, p.until, now)
	if err != nil {
		return time.Time{}, err
	}
	return moco.ParseUntil(until, now)
}

func (p planCommand) plan(ctx context.Context, kube *kubeClient, t target, until time.Time) (plannedObject, error) {
	planner, isPlanned := t.kind.Definition.(kinds.Planner)
	if !isPlanned {
		return plannedObject{}, unplannedError(t)
	}
	obj, err := kube.getObject(ctx, t)
	if err != nil {
		return plannedObject{}, err
	}
	row := t.findRow(obj)
	says := t.kind.FindPart(t.part).Annotations
	request := preflight.PlanRequest{IsStart: p.verb == startVerb, Now: p.clock.Now(), Until: until, Record: row.Stops, UntilAnnotation: says.UntilAnnotation(obj.GetAnnotations()), SkipCommand: row.SkipCommand()}
	if p.output == "" {
		request.Zone = request.Now.Location()
	}
	subject := kinds.PlanSubject{Object: obj, Part: t.part, StartCommand: row.StartCommand()}
	for _, needed := range planner.ListRelated(obj) {
		if err := kube.readRelated(ctx, t.namespace, needed, &subject); err != nil {
			return plannedObject{}, err
		}
	}
	made := planner.Plan(subject, request)
	made.Findings = preflight.Join(made.Findings, t.kind.FindPart(t.part).JudgeController(leasereader.ReadActing(ctx, kube, request.Now), t.namespace))
	planned := plannedObject{
		Namespace: t.namespace, Kind: t.kind.GVK().Kind, Name: t.name, DisplayName: row.DisplayName, Part: t.part,
		Verb: string(p.verb), State: row.State,
		Effects: made.Effects, WakeBy: made.WakeBy, Findings: append([]preflight.Finding{}, made.Findings...), target: t,
	}
	switch {
	case p.verb == startVerb:
	case !until.IsZero():
		planned.Until = new(metav1.NewTime(until.UTC()))
	case row.Slumber == "": // The end of a Slumber's stop does not end a manual stop.
		planned.Until = row.Until
	}
	return planned, nil
}

// unplannedError reports that the kind has no plan, and lists the kinds that have one.
func unplannedError(t target) error {
	var planned []string
	for _, k := range kinds.ListBuiltIn() {
		if _, isPlanned := k.Definition.(kinds.Planner); isPlanned {
			planned = append(planned, k.Names()[0])
		}
	}
	return exit.WrongUsage("%s: expected a kind with a plan, one of %s, found %s; run stop with --dry-run=server to see the change that it would write",
		t, strings.Join(planned, ", "), t.kind.Names()[0])
}

// refusal returns an error if a finding of the plan blocks.
func (o plannedObject) refusal() error {
	if !preflight.HasBlocking(o.Findings) {
		return nil
	}
	var codes []string
	for _, f := range o.Findings {
		if f.Severity == preflight.Blocking {
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

// writePlan prints the effects, and then a line for each finding.
func (p planCommand) writePlan(o plannedObject) error {
	fmt.Fprintf(p.Out, "%s %s in namespace %s, which is %s\n", o.Verb, o.target, o.Namespace, formatCell(o.State))
	for _, effect := range o.Effects {
		fmt.Fprintf(p.Out, "  %s\n", formatCell(effect))
	}
	if o.WakeBy != nil {
		fmt.Fprintf(p.Out, "  The cluster must run by %s, before its certificates expire\n", p.formatTime(o.WakeBy))
	}
	if len(o.Findings) == 0 {
		fmt.Fprintln(p.Out, "No problems were found")
		return nil
	}
	var rows [][]string
	for _, f := range o.Findings {
		rows = append(rows, []string{string(f.Severity), f.Code, formatObjects(f), formatCell(f.Message)})
	}
	return newAlignedTable(p.Out, "SEVERITY", "CODE", "OBJECTS", "FOUND").write(rows)
}

// formatObjects lists the objects of a finding. It omits objects that are sentences, because the message contains
// them.
func formatObjects(f preflight.Finding) string {
	if slices.ContainsFunc(f.Objects, func(o string) bool { return strings.Contains(o, " ") }) {
		return "-"
	}
	text := strings.Join(f.Objects, ",")
	if more := f.Count - len(f.Objects); more > 0 && len(f.Objects) > 0 {
		text += fmt.Sprintf(",+%d", more)
	}
	return formatCell(text)
}
