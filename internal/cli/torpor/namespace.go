// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	// namespacePrefix is the prefix of an argument for a namespace, and of the value of torpor.dev/stopped-with.
	namespacePrefix = "namespace/"
	// maxLeftOut is the maximum number of names that are listed for each reason why objects are left out.
	maxLeftOut = 20
)

// isNamespaceKind reports whether a kind on the command line is Namespace.
func isNamespaceKind(kindName string) bool {
	return slices.Contains([]string{"namespace", "namespaces", "ns"}, strings.ToLower(kindName))
}

// parseNamespaces returns the namespaces in the arguments, or none if the arguments are other objects.
func parseNamespaces(args []string) (names []string, err error) {
	parsed, _ := parseArguments(args) // The command reports malformed arguments.
	for _, o := range parsed.objects {
		if isNamespaceKind(o.kindName) {
			names = append(names, o.name)
		}
	}
	if len(names) > 0 && len(names) < len(parsed.objects) {
		return nil, exit.WrongUsage("expected either namespaces or other objects, found both: %s", strings.Join(args, " "))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// parseOneNamespace returns the namespace in the arguments, or "" if the arguments are other objects.
func parseOneNamespace(args []string) (string, error) {
	switch names, err := parseNamespaces(args); {
	case err != nil:
		return "", err
	case len(names) > 1:
		return "", exit.WrongUsage("expected one namespace, found %s; --all-namespaces lists the objects of all namespaces", strings.Join(names, ", "))
	default:
		return strings.Join(names, ""), nil
	}
}

// namespaceScan finds the objects of namespaces that a verb changes, and sorts them into waves.
type namespaceScan struct {
	*verbCommand
	kube      *kubeClient
	acting    lease.Acting
	schedules slumber.Schedules
	waves     map[int][]target
	// leftOut maps a reason to the objects that the verb does not change for this reason.
	leftOut map[string][]string
}

// findWaves returns the objects of the namespaces that the verb changes, wave by wave. A start has the waves of a
// stop in reverse order. Objects that are left out are listed on stderr.
func (v *verbCommand) findWaves(ctx context.Context, kube *kubeClient) ([][]target, error) {
	scan := &namespaceScan{verbCommand: v, kube: kube, waves: map[int][]target{}, leftOut: map[string][]string{}}
	scan.acting = leasereader.ReadActing(ctx, kube, v.clock.Now())
	for _, name := range v.namespaces {
		if name == metav1.NamespaceSystem && v.verb == stopVerb {
			return nil, exit.Error{Code: exit.Refused, Err: fmt.Errorf(
				"expected a namespace of applications, found %s, whose objects run the cluster; stop its objects one by one, by their names", name)}
		}
		if err := scan.addNamespace(ctx, name); err != nil {
			return nil, err
		}
	}
	scan.reportLeftOut()
	var waves [][]target
	for _, at := range slices.Sorted(maps.Keys(scan.waves)) {
		waves = append(waves, scan.waves[at])
	}
	if v.verb == startVerb {
		slices.Reverse(waves)
	}
	if len(waves) == 0 {
		fmt.Fprintf(v.Err, "Nothing to %s found in namespace %s.\n", v.verb, strings.Join(v.namespaces, ", "))
	}
	return waves, nil
}

// addNamespace adds the objects of a namespace. A kind that the user may not list is reported.
func (s *namespaceScan) addNamespace(ctx context.Context, name string) (err error) {
	s.kube.namespace = name
	if err := s.kube.checkNamespace(ctx); err != nil {
		return err
	}
	if s.schedules, err = s.kube.readSchedules(ctx); err != nil {
		return err
	}
	known, err := s.kube.listKinds(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		err := s.addKind(ctx, k)
		if errors.Is(err, errForbidden) {
			s.leave(k.GVK().Kind+"s of namespace "+name, "you may not list them")
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addKind adds the objects of a kind.
func (s *namespaceScan) addKind(ctx context.Context, k kinds.Kind) error {
	part := ""
	if parts := k.PartNames(); len(parts) == 1 {
		part = parts[0]
	}
	var objects []client.Object
	var rows []stopRow
	_, err := s.kube.eachObject(ctx, k, labels.Everything(), func(obj client.Object) {
		objects, rows = append(objects, obj), append(rows, stopRow{Row: k.FindRow(obj, part)})
	})
	hideSharedNames(rows, rows)
	for i, obj := range objects {
		s.add(target{kind: k, namespace: obj.GetNamespace(), name: obj.GetName(), shownName: rows[i].ShownName(), part: part}, obj, rows[i])
	}
	return err
}

// checkNamespace returns an error if the namespace does not exist. A user without permission to read it may still
// have permissions in it.
func (kube *kubeClient) checkNamespace(ctx context.Context) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind())
	err := kube.Get(ctx, client.ObjectKey{Name: kube.namespace}, namespace)
	switch {
	case k8serrors.IsNotFound(err):
		return fmt.Errorf("expected the namespace %q, found none; kubectl get namespaces lists them", kube.namespace)
	case err != nil && !k8serrors.IsForbidden(err):
		return fmt.Errorf("read the namespace %s: %w", kube.namespace, err)
	default:
		return nil
	}
}

// add adds an object to its wave, or to the objects that the verb leaves out.
func (s *namespaceScan) add(t target, obj client.Object, row stopRow) {
	isWithNamespace := obj.GetAnnotations()[torporv1alpha1.StoppedWithAnnotation] == namespacePrefix+t.namespace && row.IsAsked
	reason := ""
	switch {
	case s.verb != stopVerb && isWithNamespace:
	case s.verb != stopVerb && row.Slumber != "":
		reason = stoprecord.NameSlumber(row.Slumber) + " stops the object; kubectl torpor skip starts the object"
	case s.verb != stopVerb && row.Stopped:
		reason = "not stopped by a stop of its namespace"
	case s.verb != stopVerb:
		return // There is nothing to start.
	case !isWithNamespace:
		reason = s.refuse(t, obj, row)
	}
	if reason != "" {
		s.leave(t.displayName(), reason)
		return
	}
	wave := s.findWave(t.kind, obj)
	s.waves[wave] = append(s.waves[wave], t)
}

// refuse returns the reason why a stop of the namespace leaves out an object, or "" if it stops the object. An object
// that a user has already stopped keeps its own stop, so a start of the namespace does not start it.
func (s *namespaceScan) refuse(t target, obj client.Object, row stopRow) string {
	k := t.kind
	if partly, isPartly := k.Definition.(kinds.PartlyStopped); isPartly {
		return partly.DescribeWholeStop()
	}
	switch {
	case k.IsSwitched() && fieldswitch.RefuseOwned(obj) != "":
		return "owned by a controller, which stops and starts it"
	case s.runsManager(t):
		return "runs the manager, without which stopped objects do not start again"
	case row.IsAsked:
		return "already stopped"
	case row.RestsByItself:
		return "already stopped, without Torpor"
	case !k.ReadState(obj, s.clock.Now()).IsStoppable:
		return "not ready to be stopped"
	}
	return ""
}

// runsManager reports whether an object is the Deployment of an active manager.
func (s *namespaceScan) runsManager(t target) bool {
	return s.acting.Installation == t.namespace && t.kind.GVK().Kind == "Deployment" && slices.Contains(s.acting.ListManagers(), t.name)
}

// findWave returns the wave of the first schedule that selects the object. Objects that no schedule selects are in
// the first wave, or in the second wave if other objects may use them.
func (s *namespaceScan) findWave(k kinds.Kind, obj client.Object) int {
	kind := k.GVK().GroupKind()
	for _, one := range s.schedules.FindFor(kind, obj) {
		if wave, err := slumber.FindWave(one, kind, obj.GetLabels()); err == nil && wave >= 0 {
			return wave
		}
	}
	if how := k.Switch(); how != nil && how.IsLate {
		return 1
	}
	return 0
}

func (s *namespaceScan) leave(name, reason string) {
	s.leftOut[reason] = append(s.leftOut[reason], name)
}

// reportLeftOut prints a line with the left out objects for each reason.
func (s *namespaceScan) reportLeftOut() {
	for _, reason := range slices.Sorted(maps.Keys(s.leftOut)) {
		fmt.Fprintf(s.Err, "left out: %s: %s\n", joinNames(s.leftOut[reason], maxLeftOut), reason)
	}
}

// changeWaves changes one wave after the other. It waits for each wave until the timeout, but for the last wave only
// with --wait. Without --wait, it does not wait for objects on which no controller acts.
func (v *verbCommand) changeWaves(ctx context.Context, kube *kubeClient, waves [][]target) []*verbResult {
	acting := leasereader.ReadActing(ctx, kube, v.clock.Now())
	waits, end := context.WithTimeout(ctx, cmp.Or(v.timeout, defaultTimeout))
	defer end()
	results := []*verbResult{} // Programs expect an empty list instead of null.
	for i, wave := range waves {
		isAwaited := v.dryRun != dryRunServer && v.verb != extendVerb && (v.waits || i < len(waves)-1 && waits.Err() == nil)
		if len(waves) > 1 {
			fmt.Fprintf(v.Err, "wave %d of %d: %s\n", i+1, len(waves), describeCount(len(wave)))
		}
		var changed []*verbResult
		for _, t := range wave {
			r := v.change(ctx, kube, t)
			changed = append(changed, r)
			if !isAwaited {
				v.printResult(r)
			}
		}
		results = append(results, changed...)
		v.warnOfResults(ctx, kube, changed)
		for _, r := range changed {
			if !isAwaited {
				break
			}
			if v.waits || acting.DescribeInaction(r.target.controllers(), r.target.namespace) == "" {
				v.waitForStatus(waits, kube, r)
			}
			v.printResult(r)
		}
	}
	return results
}

func describeCount(objects int) string {
	if objects == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", objects)
}

// fixEnd replaces a duration with a time, so that all waves of a namespace have the same end.
func (v *verbCommand) fixEnd() {
	if d, err := time.ParseDuration(v.until); err == nil {
		v.until = v.clock.Now().Add(d).UTC().Format(time.RFC3339)
	}
}
