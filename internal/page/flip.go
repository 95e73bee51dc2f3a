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
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// fieldManager is the field manager of writes, which use the user's token.
const fieldManager = "torpor-page"

var (
	errUnknownVerb = errors.New("expected the verb stop, start, extend or skip, found another verb")
	errNoObject    = errors.New("expected an object, found none")
	errNameless    = errors.New("expected a name and a namespace, found none")
	errEndless     = errors.New("expected the new end of the stop, found none")
)

// flipError is the reason why a request is rejected, with the HTTP status of the response.
type flipError struct {
	status int
	text   string
}

func (e flipError) Error() string { return e.text }

// flip is a request to change one switch.
type flip struct {
	kind                  kinds.Kind
	namespace, name, part string
	verb                  string
	// reason and until are the reason and the end of a stop, or the end of a skip; both may be empty.
	reason, until string
}

// parseFlip parses the action in the form, and the object in target. target is the form itself, or one of the objects
// in the form.
func (s *Server) parseFlip(r *http.Request, target url.Values) (flip, error) {
	k, err := s.inventory.findKind(target.Get("kind"))
	if err != nil {
		return flip{}, err
	}
	f := flip{
		kind: *k, namespace: target.Get("namespace"), name: target.Get("name"), part: target.Get("part"),
		verb: r.PostFormValue("verb"), reason: strings.TrimSpace(r.PostFormValue("reason")),
		until: strings.TrimSpace(r.PostFormValue("until")),
	}
	zone, err := findZone(r.PostFormValue("zone"))
	if err != nil {
		return flip{}, err
	}
	return f.validate(s.Clock.Now().In(zone))
}

// validate returns an error for an invalid request before any call of the API server. It replaces an end such as
// "tomorrow", in the zone of now, with the time in UTC.
func (f flip) validate(now time.Time) (flip, error) {
	parts := f.kind.PartNames()
	switch {
	case titleOf(f.verb) == "":
		return f, errUnknownVerb
	case f.verb != skipVerb && !slices.Contains(parts, f.part):
		return f, fmt.Errorf("expected one of the switches %s of a %s, found %q",
			strings.Join(parts, ", "), f.kind.GVK().Kind, f.part)
	case f.name == "" || f.namespace == "":
		return f, errNameless
	case f.until == "" && f.verb == extendVerb:
		return f, errEndless
	case f.until == "":
		return f, nil
	}
	until, err := stoprecord.ParseNewUntil(f.until, now)
	if err == nil && !stoprecord.IsAnnotationTime(f.until) {
		f.until = until.UTC().Format(time.RFC3339)
	}
	return f, err
}

// write makes the same change as the commands stop, start, extend and skip, with the rights of the client, and retries
// after a conflict. changed is false if the object was already in the requested state.
func (f flip) write(ctx context.Context, kube client.Client, now clock.PassiveClock) (changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before := f.kind.New()
		if err := kube.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: f.name}, before); err != nil {
			if k8serrors.IsNotFound(err) {
				return errNoObject
			}
			return fmt.Errorf("read the object: %w", err)
		}
		after, _ := before.DeepCopyObject().(client.Object)
		if err := f.apply(ctx, kube, after, now.Now().UTC()); err != nil {
			return err
		}
		patch := client.MergeFrom(before)
		if f.verb == extendVerb { // Detect a stop that has ended since the read, because it must not begin again.
			patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		}
		if data, err := client.MergeFrom(before).Data(after); err != nil || string(data) == "{}" {
			return err
		}
		changed = true
		if err := kube.Patch(ctx, after, patch, client.FieldOwner(fieldManager)); err != nil {
			return fmt.Errorf("write the object: %w", err)
		}
		return nil
	})
	return changed && err == nil, err
}

// apply changes an object as requested.
func (f flip) apply(ctx context.Context, kube client.Client, obj client.Object, now time.Time) error {
	change := kinds.Change{IsStart: f.verb == startVerb, IsExtension: f.verb == extendVerb}
	row := f.kind.FindRow(obj, f.part)
	switch {
	case f.verb == skipVerb:
		return f.skip(ctx, kube, obj, now)
	case f.verb == stopVerb:
		change.Reason = &f.reason
	case f.verb == extendVerb:
		if err := f.refuseExtension(row, now); err != nil {
			return err
		}
	case row.Slumber != "":
		return flipError{
			http.StatusConflict,
			fmt.Sprintf("expected a manual stop, found that %s stops the object; %s starts the object", stoprecord.NameSlumber(row.Slumber), row.SkipCommand()),
		}
	}
	if f.until != "" {
		change.Until = &f.until
	}
	return change.Apply(obj, f.kind.FindPart(f.part), row, now)
}
