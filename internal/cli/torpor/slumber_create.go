// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	dryRunClient = "client"
	// namelessZone is Go's name of the local time zone if TZ does not specify a name.
	namelessZone = "Local"
	// previewedTransitions is the maximum number of transitions that create prints.
	previewedTransitions = 4
)

// slumberCreate creates a Slumber, or a ClusterSlumber if namespaces are selected.
type slumberCreate struct {
	*commands
	asleep, waves, namespaces, holidays []string
	days, timeZone, selector, reason    string
	namespaceSelector, dryRun, output   string
	isEverywhere, isSuspended           bool
}

func (a *commands) newSlumberCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slumber",
		Short: "Create and list Slumbers and ClusterSlumbers, which stop objects on a schedule",
		Long:  "Create and list Slumbers and ClusterSlumbers, which stop objects on a schedule. kubectl torpor why slumber/NAME explains a Slumber.",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return exit.WrongUsage("expected create or list, found neither") },
	}
	cmd.AddCommand(a.newSlumberCreateCommand(), a.newSlumberListCommand())
	return cmd
}

func (a *commands) newSlumberCreateCommand() *cobra.Command {
	s := &slumberCreate{commands: a}
	cmd := &cobra.Command{
		Use:   "create NAME --asleep FROM-TO [--days DAYS] [--timezone ZONE]",
		Short: "Create a Slumber, or with --namespaces, --namespace-selector or --all-namespaces a ClusterSlumber",
		Long: `Create a Slumber, or with --namespaces, --namespace-selector or --all-namespaces a ClusterSlumber.
A sleep begins and ends on the days of --days: with Mon-Fri, 19:00-7:00 is every night from Monday, and from Friday 19:00 to Monday 7:00.
The next changes are printed to stderr. The API server validates the schedule, with --dry-run=server without storing it.`,
		Example: `  # Stop the ` + kinds.JoinNames(kinds.ListWorkloads().Plurals()) + ` of the namespace at night and at the weekend
  kubectl torpor slumber create nights --asleep 19:00-7:00 --days Mon-Fri --timezone Europe/Berlin --reason "nobody works at night"

  # The same for all namespaces with a label, also for later ones
  kubectl torpor slumber create nights --asleep 19:00-7:00 --days Mon-Fri --timezone Europe/Berlin --namespace-selector environment=development

  # Stop apps first, and then databases; print the YAML without contacting the API server
  kubectl torpor slumber create nights --asleep 20:00-6:30 --timezone UTC --wave apps=cfapp,deploy --wave databases=mysqlcluster --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions, RunE: s.run,
	}
	f := cmd.Flags()
	f.StringArrayVar(&s.asleep, "asleep", nil, "times of day between which the objects sleep, such as 19:00-7:00; may be repeated")
	f.StringVar(&s.days, "days", "*", "days on which a sleep begins and ends, such as Mon-Fri or Sat,Sun; all by default")
	f.StringVar(&s.timeZone, "timezone", "", "IANA name of the time zone, such as Europe/Berlin; the one in the variable TZ by default")
	f.StringArrayVar(&s.holidays, "holiday", nil, "day on which the objects sleep, such as 2026-12-24, --12-24 for every year, or 2026-12-24/2026-12-26; may be repeated")
	f.StringArrayVar(&s.waves, "wave", defaultWaves(), "kinds that are stopped together, as NAME=KIND[,KIND...]; may be repeated, in the order of a stop")
	f.StringVarP(&s.selector, selectorFlag, "l", "", "labels of the objects, such as team=a; all objects by default")
	f.StringVar(&s.reason, "reason", "", "reason for the stops, as one sentence")
	f.BoolVar(&s.isSuspended, "suspend", false, "create the schedule without stopping objects")
	f.StringSliceVar(&s.namespaces, "namespaces", nil, "names of the namespaces of a ClusterSlumber")
	f.StringVar(&s.namespaceSelector, "namespace-selector", "", "labels of the namespaces of a ClusterSlumber, such as environment=development")
	f.BoolVarP(&s.isEverywhere, allNamespacesFlag, "A", false, "a ClusterSlumber of all namespaces, including those of the cluster itself")
	f.StringVar(&s.dryRun, "dry-run", dryRunNone, "client: nothing is sent; server: the API server validates the object and does not store it; none: the object is created")
	f.StringVarP(&s.output, "output", "o", "", "json, yaml, name, or empty for text")
	completion.OfferValues(cmd, "days", "Mon-Fri", "Sat,Sun")
	completion.OfferValues(cmd, "dry-run", dryRunClient, dryRunServer, dryRunNone)
	completion.OfferValues(cmd, "output", "json", "yaml", "name")
	return cmd
}

// defaultWaves returns the default of --wave, which contains all workloads.
func defaultWaves() (waves []string) {
	for _, wave := range kinds.ListWorkloadWaves() {
		waves = append(waves, wave.Name+"="+strings.Join(wave.Kinds.Names(), ","))
	}
	return waves
}

func (s *slumberCreate) run(cmd *cobra.Command, args []string) error {
	if err := validateOutput(s.output, "json", "yaml", "name"); err != nil {
		return err
	}
	if s.dryRun != dryRunNone && s.dryRun != dryRunServer && s.dryRun != dryRunClient {
		return exit.WrongUsage("--dry-run: expected client, server or none, found %q", s.dryRun)
	}
	kube, err := s.connect()
	if err != nil {
		return err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	spec, err := s.buildSpec(ctx, kube)
	if err != nil {
		return err
	}
	schedule, err := slumber.ParseSchedule(spec)
	if err != nil {
		return exit.WrongUsage("%w", err)
	}
	obj, err := s.build(cmd, args[0], kube.namespace, spec)
	if err != nil {
		return err
	}
	if err := s.create(ctx, kube, obj); err != nil {
		return err
	}
	if err := s.print(obj); err != nil {
		return err
	}
	next := schedule.NextTransitions(s.clock.Now())
	for _, t := range next[:min(len(next), previewedTransitions)] {
		fmt.Fprintf(s.Err, "next: %s at %s\n", t.To, schedule.Local(t.At.Time).Format(slumber.LocalTime))
	}
	return nil
}

// buildSpec returns the schedule and the waves that the flags define.
func (s *slumberCreate) buildSpec(ctx context.Context, kube *kubeClient) (torporv1alpha1.SlumberSpec, error) {
	spec := torporv1alpha1.SlumberSpec{TimeZone: s.timeZone, Reason: s.reason, Suspend: s.isSuspended}
	if spec.TimeZone == "" {
		if spec.TimeZone = s.clock.Now().Location().String(); spec.TimeZone == namelessZone {
			return spec, exit.WrongUsage("--timezone: expected the name of a time zone such as Europe/Berlin, found none, and none in TZ")
		}
	}
	days, err := slumber.ParseDays(s.days)
	if err != nil {
		return spec, exit.WrongUsage("--days: %w", err)
	}
	for _, text := range s.asleep {
		window, err := slumber.ParseSleep(text, days)
		if err != nil {
			return spec, exit.WrongUsage("--asleep: %w", err)
		}
		spec.Windows = append(spec.Windows, window)
	}
	for _, text := range s.holidays {
		first, last, _ := strings.Cut(text, "/")
		spec.Holidays = append(spec.Holidays, torporv1alpha1.Holiday{First: first, Last: last})
	}
	if len(spec.Windows)+len(spec.Holidays) == 0 {
		return spec, exit.WrongUsage("expected --asleep with the times of a sleep such as 19:00-7:00, or --holiday, found neither")
	}
	spec.Waves, err = s.buildWaves(ctx, kube)
	return spec, err
}

func (s *slumberCreate) buildWaves(ctx context.Context, kube *kubeClient) (waves []torporv1alpha1.SlumberWave, err error) {
	selector, err := metav1.ParseToLabelSelector(s.selector)
	if err != nil {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found %q: %w", s.selector, err)
	}
	for _, text := range s.waves {
		name, kindNames, hasName := strings.Cut(text, "=")
		if !hasName || name == "" || kindNames == "" {
			return nil, exit.WrongUsage("--wave: expected NAME=KIND[,KIND...], found %q", text)
		}
		chosen, err := kube.findKinds(ctx, strings.Split(kindNames, ","))
		if err != nil {
			return nil, err
		}
		wave := torporv1alpha1.SlumberWave{Name: name}
		for _, k := range chosen {
			target := torporv1alpha1.SlumberTarget{Kind: k.GVK().Kind, Selector: *selector}
			if k.IsForeign() {
				target.APIGroup = k.GVK().Group
			}
			wave.Targets = append(wave.Targets, target)
		}
		waves = append(waves, wave)
	}
	return waves, nil
}

// build returns the Slumber, or the ClusterSlumber if namespaces are selected.
func (s *slumberCreate) build(cmd *cobra.Command, name, namespace string, spec torporv1alpha1.SlumberSpec) (client.Object, error) {
	selects := 0
	selector := metav1.LabelSelector{}
	if len(s.namespaces) > 0 {
		selects++
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: s.namespaces}}
	}
	if cmd.Flags().Changed("namespace-selector") {
		selects++
		parsed, err := metav1.ParseToLabelSelector(s.namespaceSelector)
		if err != nil || s.namespaceSelector == "" {
			return nil, exit.WrongUsage("--namespace-selector: expected labels such as environment=development, found %q", s.namespaceSelector)
		}
		selector = *parsed
	}
	if s.isEverywhere {
		selects++
	}
	switch selects {
	case 0:
		obj := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
		obj.SetGroupVersionKind(torporv1alpha1.SlumberKind())
		return obj, nil
	case 1:
		obj := &torporv1alpha1.ClusterSlumber{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: torporv1alpha1.ClusterSlumberSpec{SlumberSpec: spec, NamespaceSelector: selector}}
		obj.SetGroupVersionKind(torporv1alpha1.ClusterSlumberKind())
		return obj, nil
	default:
		return nil, exit.WrongUsage("expected one of --namespaces, --namespace-selector and --all-namespaces, found several")
	}
}

func (s *slumberCreate) create(ctx context.Context, kube *kubeClient, obj client.Object) error {
	options := []client.CreateOption{client.FieldOwner(fieldManager)}
	switch s.dryRun {
	case dryRunClient:
		return nil
	case dryRunServer:
		options = append(options, client.DryRunAll)
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	if err := kube.Create(ctx, obj, options...); err != nil {
		return fmt.Errorf("create the %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return nil
}

// print prints the object in the requested format and without its status, or a line that reports its creation.
func (s *slumberCreate) print(obj client.Object) error {
	kind := obj.GetObjectKind().GroupVersionKind().GroupKind()
	switch s.output {
	case "name":
		fmt.Fprintln(unfitted(s.Out), strings.ToLower(kind.String())+"/"+obj.GetName())
		return nil
	case "":
		note := ""
		if s.dryRun != dryRunNone {
			note = " (" + s.dryRun + " dry run)"
		}
		fmt.Fprintf(s.Out, "%s/%s created%s\n", strings.ToLower(kind.Kind), obj.GetName(), note)
		return nil
	}
	obj.SetManagedFields(nil)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	delete(content, "status")
	if metadata, isMap := content["metadata"].(map[string]any); isMap && metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	return s.writeData(s.output, content)
}
