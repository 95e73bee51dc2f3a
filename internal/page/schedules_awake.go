// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	// maxAwake limits the number of objects that one request keeps running. maxScanned limits the number of objects
	// that it reads for a target.
	maxAwake, maxScanned = 100, 1000
	// maxShownMembers limits the number of objects that the page lists. maxShownFailures limits the number of objects
	// listed as unchanged.
	maxShownMembers, maxShownFailures = 20, 5
)

var errNoSchedule = flipError{
	http.StatusNotFound,
	"Expected a schedule that you may list, found none; load the page again.",
}

// refuseAwake returns the error for a request that is rejected before any object is changed.
func refuseAwake(format string, values ...any) error {
	return flipError{http.StatusConflict, fmt.Sprintf(format, values...)}
}

// keepAwake is a request to keep the objects of a schedule running until a given time. It writes the same annotation as
// kubectl torpor skip.
type keepAwake struct {
	listed *listedSchedule
	// namespace is the namespace of the objects.
	namespace string
	until     time.Time
	members   []awakeMember
}

type awakeMember struct {
	kind *kinds.Kind
	obj  *metav1.PartialObjectMetadata
}

// name returns the kind and the name of a member.
func (m awakeMember) name() string { return m.kind.GVK().Kind + " " + m.obj.Name }

// prepareAwake parses a request, and reads the affected objects with the rights of the caller.
func (s *Server) prepareAwake(
	ctx context.Context, caller *authorization.Caller, seen seenSchedules, values url.Values,
) (keepAwake, error) {
	k := keepAwake{listed: seen.find(values.Get("kind"), values.Get("namespace"), values.Get("name"))}
	if k.listed == nil {
		return k, errNoSchedule
	}
	if k.namespace = k.listed.Namespace; k.listed.ofCluster != nil {
		k.namespace = strings.TrimSpace(values.Get("in"))
	}
	if k.namespace == "" {
		return k, flipError{http.StatusBadRequest, "Expected the namespace whose objects are kept awake, found none."}
	}
	var err error
	if k.until, err = k.listed.parseAwakeUntil(strings.TrimSpace(values.Get("until")), s.Clock.Now()); err != nil {
		return k, flipError{http.StatusBadRequest, "Until: " + err.Error()}
	}
	reach, err := s.readReach(ctx, caller, k)
	if err != nil {
		return k, err
	}
	k.members, err = s.findMembers(ctx, caller.Client, k, reach)
	return k, err
}

// parseAwakeUntil parses the end of a skip. Days and times without a zone are in the zone of the schedule, or in UTC if
// the schedule is invalid. An empty text means the end of the current or next sleep.
func (l *listedSchedule) parseAwakeUntil(text string, now time.Time) (time.Time, error) {
	if l.err != nil {
		return stoprecord.ParseNewUntil(text, now.UTC())
	}
	if text != "" {
		return stoprecord.ParseNewUntil(text, l.schedule.Local(now))
	}
	until := l.schedule.FindEndOfSleep(now)
	if until.IsZero() {
		return until, errors.New("expected a schedule whose sleep ends, found none; enter the end")
	}
	return until, nil
}

// local converts a time to the zone of the schedule, or to UTC if the schedule is invalid.
func (l *listedSchedule) local(at time.Time) time.Time {
	if l.err != nil {
		return at.UTC()
	}
	return l.schedule.Local(at)
}

// readReach returns which objects of one namespace a ClusterSlumber may affect, or nil for a Slumber.
func (s *Server) readReach(ctx context.Context, caller *authorization.Caller, k keepAwake) (*slumber.Reach, error) {
	if k.listed.ofCluster == nil {
		return nil, nil
	}
	namespace := metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind())
	if err := caller.Client.Get(ctx, client.ObjectKey{Name: k.namespace}, &namespace); err != nil {
		return nil, fmt.Errorf("read the namespace: %w", err)
	}
	var others []torporv1alpha1.Slumber
	for _, source := range s.sources {
		for _, l := range source.list() {
			if l.ofCluster == nil && l.Namespace == k.namespace {
				others = append(others, *l.slumber)
			}
		}
	}
	reach, err := slumber.NewReach(k.listed.ofCluster, []metav1.PartialObjectMetadata{namespace}, others)
	if err != nil {
		return nil, flipError{http.StatusConflict, err.Error()}
	}
	if !reach.Includes(k.namespace) {
		return nil, refuseAwake("The ClusterSlumber %s does not select the namespace %s.", k.listed.Name, k.namespace)
	}
	return reach, nil
}

// findMembers returns the objects that the schedule selects in the namespace, sorted by kind and name.
func (s *Server) findMembers(
	ctx context.Context, kube client.Client, k keepAwake, reach *slumber.Reach,
) (found []awakeMember, err error) {
	known := map[types.UID]bool{}
	for _, wave := range k.listed.slumber.Spec.Waves {
		for _, target := range wave.Targets {
			all, err := s.listTarget(ctx, kube, k.namespace, target)
			if err != nil {
				return nil, err
			}
			found = append(found, slices.DeleteFunc(all, func(m awakeMember) bool {
				at, err := reach.FindWave(k.listed.slumber, m.kind.GVK().GroupKind(), m.obj)
				isKnown := known[m.obj.UID]
				known[m.obj.UID] = true
				return err != nil || at < 0 || isKnown
			})...)
		}
	}
	slices.SortFunc(found, func(a, b awakeMember) int { return strings.Compare(a.name(), b.name()) })
	switch {
	case len(found) == 0:
		return nil, refuseAwake("Expected objects that the schedule stops and that you may list, found none.")
	case len(found) > maxAwake:
		return nil, refuseAwake("Expected at most %d objects, found %d; use kubectl torpor skip.", maxAwake, len(found))
	default:
		return found, nil
	}
}

// listTarget lists the objects that a target selects. For a kind that is not watched or not served, the list is empty.
func (s *Server) listTarget(
	ctx context.Context, kube client.Client, namespace string, target torporv1alpha1.SlumberTarget,
) (all []awakeMember, err error) {
	for _, k := range s.inventory.listKinds() {
		if k.GVK().GroupKind() != slumber.KindOf(target) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&target.Selector)
		if err != nil {
			return nil, flipError{http.StatusConflict, err.Error()}
		}
		list := k.NewMetadataList()
		labels := client.MatchingLabelsSelector{Selector: selector}
		err = kube.List(ctx, list, client.InNamespace(namespace), labels, client.Limit(maxScanned))
		switch {
		case kinds.IsKindNotServed(err):
			return nil, nil
		case k8serrors.IsForbidden(err):
			why := fmt.Sprintf("You may not list objects of the kind %s in the namespace %s.", k.GVK().Kind, namespace)
			return nil, flipError{http.StatusForbidden, why}
		case err != nil:
			return nil, fmt.Errorf("list the objects: %w", err)
		case list.Continue != "":
			return nil, refuseAwake("Expected at most %d objects of the kind %s, found more; use kubectl torpor skip.", maxScanned, k.GVK().Kind)
		}
		for i := range list.Items {
			one := &list.Items[i]
			one.SetGroupVersionKind(k.GVK())
			all = append(all, awakeMember{k, one})
		}
	}
	return all, nil
}

// listNames returns the names of the objects, up to the limit of the page.
func (k keepAwake) listNames() (names []string) {
	for _, m := range k.members[:min(len(k.members), maxShownMembers)] {
		names = append(names, m.name())
	}
	if more := len(k.members) - maxShownMembers; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return names
}

// untilText returns the end of the skip in the zone of the schedule.
func (k keepAwake) untilText() string { return k.listed.local(k.until).Format(slumber.LocalTime) }

// write writes the skip to each object, with the rights of the client. It returns the number of changed objects, and
// the reasons why other objects were not changed.
func (k keepAwake) write(ctx context.Context, kube client.Client) (changed int, failures []string) {
	for _, m := range k.members {
		after := m.obj.DeepCopy()
		kinds.SetAnnotation(after, torporv1alpha1.SkipUntilAnnotation, k.until.UTC().Format(time.RFC3339))
		if err := kube.Patch(ctx, after, client.MergeFrom(m.obj), client.FieldOwner(fieldManager)); err != nil {
			_, why := explainRefusal(err)
			failures = append(failures, m.name()+": "+why)
			continue
		}
		changed++
	}
	return changed, failures
}

// describeFailures joins the reasons why objects were not changed, up to the limit of the page.
func describeFailures(failures []string) string {
	shown := slices.Clone(failures[:min(len(failures), maxShownFailures)])
	if more := len(failures) - maxShownFailures; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, "; ")
}
