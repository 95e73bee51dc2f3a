// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// maxSchedules limits the number of Slumbers in a namespace, and of ClusterSlumbers, that a skip reads.
const maxSchedules = 500

// refuseExtension returns an error if no manual stop is in effect, or if the new end is invalid or is not later than
// the current one.
func (f flip) refuseExtension(row kinds.Row, now time.Time) error {
	if !row.IsAsked {
		return flipError{http.StatusConflict, "expected a manual stop in effect, found none; stop the object to begin one"}
	}
	until, err := stoprecord.ParseNewUntil(f.until, now)
	if err != nil {
		return flipError{http.StatusBadRequest, err.Error()}
	}
	if present := row.Until; present != nil && !until.After(present.Time) {
		return flipError{http.StatusConflict, fmt.Sprintf(
			"expected a time after the current end of the stop, %s, found %s; kubectl torpor stop sets an earlier end",
			present.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))}
	}
	return nil
}

// skip keeps an object running until the requested time, or until the end of the current or next sleep.
func (f flip) skip(ctx context.Context, kube client.Client, obj client.Object, now time.Time) error {
	until, err := f.findSkipEnd(ctx, kube, obj, now)
	if err != nil {
		return err
	}
	kinds.SetAnnotation(obj, torporv1alpha1.SkipUntilAnnotation, until.UTC().Format(time.RFC3339))
	return nil
}

func (f flip) findSkipEnd(ctx context.Context, kube client.Client, obj client.Object, now time.Time) (time.Time, error) {
	if f.until != "" {
		until, err := stoprecord.ParseNewUntil(f.until, now)
		if err != nil {
			return until, flipError{http.StatusBadRequest, err.Error()}
		}
		return until, nil
	}
	schedules, err := readSchedules(ctx, kube, f.namespace)
	if err != nil {
		return time.Time{}, err
	}
	until := schedules.EndOfSleep(f.kind.GVK().GroupKind(), obj, now)
	if until.IsZero() {
		return until, flipError{
			http.StatusConflict,
			"expected a Slumber or ClusterSlumber that stops the object and that you may read, found none; enter the end",
		}
	}
	return until, nil
}

// readSchedules returns the Slumbers of a namespace, and the ClusterSlumbers that select the namespace, as far as the
// caller may read them.
func readSchedules(ctx context.Context, kube client.Client, namespace string) (slumber.Schedules, error) {
	slumbers, ofCluster := &torporv1alpha1.SlumberList{}, &torporv1alpha1.ClusterSlumberList{}
	place := &metav1.PartialObjectMetadata{}
	place.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for _, err := range []error{
		addToMapper(kube, slumbers, meta.RESTScopeNamespace),
		addToMapper(kube, ofCluster, meta.RESTScopeRoot),
		addToMapper(kube, place, meta.RESTScopeRoot),
	} {
		if err != nil {
			return slumber.Schedules{}, err
		}
	}
	err := kube.List(ctx, slumbers, client.InNamespace(namespace), client.Limit(maxSchedules))
	if isHidden(err) { // A Slumber takes precedence, so without the Slumbers the effect of ClusterSlumbers is unknown.
		return slumber.Schedules{}, nil
	}
	if err != nil {
		return slumber.Schedules{}, fmt.Errorf("list the Slumbers: %w", err)
	}
	if err = kube.List(ctx, ofCluster, client.Limit(maxSchedules)); err != nil && !isHidden(err) {
		return slumber.Schedules{}, fmt.Errorf("list the ClusterSlumbers: %w", err)
	}
	if len(ofCluster.Items) == 0 {
		return slumber.NewSchedules(slumbers.Items, nil, nil), nil
	}
	err = kube.Get(ctx, client.ObjectKey{Name: namespace}, place)
	if isHidden(err) || k8serrors.IsNotFound(err) {
		return slumber.NewSchedules(slumbers.Items, nil, nil), nil
	}
	if err != nil {
		return slumber.Schedules{}, fmt.Errorf("read the labels of the namespace: %w", err)
	}
	return slumber.NewSchedules(slumbers.Items, ofCluster.Items, []metav1.PartialObjectMetadata{*place}), nil
}

// isHidden reports whether a kind is not served, or the caller does not have the right to read it.
func isHidden(err error) bool { return kinds.IsKindNotServed(err) || k8serrors.IsForbidden(err) }

// serveUntil responds with the time for a text in the field Until, so the user can check the time before the request.
func (s *Server) serveUntil(_ context.Context, r callerRequest) {
	zone, err := findZone(r.URL.Query().Get("zone"))
	if err == nil {
		var until time.Time
		if until, err = stoprecord.ParseNewUntil(r.URL.Query().Get("until"), s.Clock.Now().In(zone)); err == nil {
			r.writer.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = r.writer.Write([]byte(html.EscapeString(stoprecord.FormatLocal(until, zone)))) // The client may have disconnected.
			return
		}
	}
	http.Error(r.writer, err.Error(), http.StatusBadRequest)
}
