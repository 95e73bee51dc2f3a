// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	// maxPastStops, maxShownConditions and maxShownEvents limit the lists in the drawer. maxReadEvents limits the
	// events that are read to find the newest ones.
	maxPastStops, maxShownConditions, maxShownEvents, maxReadEvents = 20, 50, 20, 500
	// maxZone limits the length of a time zone name.
	maxZone = 64
)

// details is the content of the drawer: one switch of an object, as far as the caller may see it.
type details struct {
	Row rowView
	// Verbs are the actions on the switch that the caller may request, such as stop and skip.
	Verbs             []string
	SkippedUntil      *timeView
	SkippedBy, Remedy string
	Plan              planView
	Stops             []stopView
	MoreStops         int
	Conditions        []metav1.Condition
	Events            []eventView
	// EventsNote is the reason why the events cannot be read.
	EventsNote string
}

// detailsRequest identifies a switch of an object, the caller, and the caller's time zone.
type detailsRequest struct {
	caller *authorization.Caller
	kind   *kinds.Kind
	name   client.ObjectKey
	part   string
	zone   *time.Location
}

// stopView is a past or current stop in the record.
type stopView struct {
	Since, Until, EndedAt          *timeView
	By, Reason, UntilBy, StartedBy string
}

// eventView is an event of the object.
type eventView struct {
	At                    *timeView
	Type, Reason, Message string
	Count                 int32
}

// serveDetails serves the drawer for one switch of an object. For a request of the page's script it serves only the
// drawer's content, and otherwise a whole page. All reads use the caller's own token.
func (s *Server) serveDetails(ctx context.Context, r callerRequest) {
	values := r.URL.Query()
	zone, err := findZone(values.Get("zone"))
	if err != nil {
		http.Error(r.writer, err.Error(), http.StatusBadRequest)
		return
	}
	k, err := s.inventory.findKind(values.Get("kind"))
	if err != nil {
		http.Error(r.writer, err.Error(), http.StatusBadRequest)
		return
	}
	name := client.ObjectKey{Namespace: values.Get("namespace"), Name: values.Get("name")}
	found, err := s.readDetails(ctx, detailsRequest{r.caller, k, name, values.Get("part"), zone})
	switch {
	case err != nil:
		status, text := describeError(err)
		http.Error(r.writer, text, status)
	case isPartOfPage(r.Request):
		writeHTML(r.writer, http.StatusOK, renderDetails(found))
	default:
		writeHTML(r.writer, http.StatusOK, renderDetailsPage(found))
	}
}

// isPartOfPage reports whether the script requests details in order to add them to the page.
func isPartOfPage(r *http.Request) bool { return r.URL.Query().Get("part-of-page") != "" }

// refuseDetails responds with an error, in the form that the script or a browser expects.
func (s *Server) refuseDetails(w http.ResponseWriter, r *http.Request, err error) {
	if isPartOfPage(r) {
		refuseScript(w, r, err)
		return
	}
	s.refuse(w, r, err)
}

// findZone returns the time zone of a caller's browser, or UTC if the browser sends none.
func findZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if zone, err := time.LoadLocation(name[:min(len(name), maxZone)]); err == nil && name != "Local" {
		return zone, nil
	}
	return nil, fmt.Errorf("expected a time zone such as Europe/Berlin, found %.40q", name)
}

// readDetails reads one switch of an object, and the objects that a plan needs, with the caller's own token.
func (s *Server) readDetails(ctx context.Context, q detailsRequest) (details, error) {
	caller, k, name, part := q.caller, q.kind, q.name, q.part
	if name.Name == "" || name.Namespace == "" {
		return details{}, flipError{http.StatusBadRequest, errNameless.Error()}
	}
	obj := k.New()
	if err := caller.Client.Get(ctx, name, obj); err != nil {
		if k8serrors.IsNotFound(err) {
			return details{}, flipError{http.StatusNotFound, errNoObject.Error()}
		}
		return details{}, fmt.Errorf("read the object: %w", err)
	}
	now := s.Clock.Now()
	unchanged, _ := obj.DeepCopyObject().(client.Object)
	rows := k.DescribeRows(unchanged)
	at := slices.IndexFunc(rows, func(r kinds.Row) bool { return r.Part == part })
	if at < 0 {
		text := fmt.Sprintf("expected a switch of the %s, found %.40q", k.GVK().Kind, part)
		return details{}, flipError{http.StatusNotFound, text}
	}
	row, listed := rows[at], newListedSwitch(k, obj, rows[at]).withGap(s.inventory.readActing())
	d := details{
		Row: newRowView(listed, now), Conditions: rows[0].Conditions, Remedy: listed.Remedy,
	}
	if d.Row.StartsItself {
		d.Row.Next = row.NextAt(now)
	}
	sees := &visibility{caller: caller, canPatch: map[kindNamespace]bool{}}
	if verbs := listVerbs(listed); len(verbs) > 0 && sees.mayPatch(ctx, listed) {
		d.Row.Verb, d.Verbs = verbs[0], verbs
	}
	if row.SkippedUntil != nil && now.Before(row.SkippedUntil.Time) {
		d.SkippedUntil, d.SkippedBy = newTimeView(row.SkippedUntil), row.SkippedBy
	}
	d.Stops, d.MoreStops = listStops(row)
	d.Conditions = slices.Clone(d.Conditions[:min(len(d.Conditions), maxShownConditions)])
	d.Events, d.EventsNote = readEvents(ctx, caller, obj)
	var err error
	d.Plan, err = s.plan(ctx, q, listed, row, obj)
	return d, err
}

// listStops returns the newest stops in the record, and the number of older stops.
func listStops(row kinds.Row) (stops []stopView, more int) {
	all := slices.Concat(row.Stops, row.PastScheduled)
	slices.SortStableFunc(all, func(a, b torporv1alpha1.StopRecord) int { return b.Since.Compare(a.Since.Time) })
	more = max(0, len(all)-maxPastStops)
	for _, one := range all[:len(all)-more] {
		v := stopView{
			Since: newTimeView(&one.Since), Until: newTimeView(one.Until), EndedAt: newTimeView(one.EndedAt),
			By: one.By, Reason: one.Reason, StartedBy: one.StartedBy,
		}
		if one.UntilBy != one.By {
			v.UntilBy = one.UntilBy
		}
		stops = append(stops, v)
	}
	return stops, more
}

// readEvents returns the newest events about an object, or a note that explains why they cannot be read.
func readEvents(ctx context.Context, caller *authorization.Caller, obj client.Object) (shown []eventView, note string) {
	list, err := caller.Core.Events(obj.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(obj.GetUID())).String(), Limit: maxReadEvents,
	})
	switch {
	case k8serrors.IsForbidden(err):
		return nil, "You may not list the events of this namespace."
	case err != nil:
		return nil, "The API server did not return the events; try again."
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(b).Compare(lastSeen(a).Time) })
	for _, one := range list.Items[:min(len(list.Items), maxShownEvents)] {
		at := lastSeen(one)
		count := one.Count
		if one.Series != nil {
			count = one.Series.Count
		}
		shown = append(shown, eventView{newTimeView(&at), one.Type, one.Reason, one.Message, count})
	}
	return shown, ""
}

// lastSeen returns the last time of an event. The field depends on the API version that wrote the event.
func lastSeen(e corev1.Event) metav1.Time {
	var series metav1.Time
	if e.Series != nil {
		series = metav1.NewTime(e.Series.LastObservedTime.Time)
	}
	return cmp.Or(series, e.LastTimestamp, metav1.NewTime(e.EventTime.Time), e.CreationTimestamp)
}
