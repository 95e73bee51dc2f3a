// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// fieldManager is the field manager of writes, which are made with the user's token.
const fieldManager = "torpor-page"

var (
	errUnknownVerb = errors.New("expected the verb stop or start, found another")
	errNoObject    = errors.New("expected the object, found none")
	errNameless    = errors.New("expected a name and a namespace, found none")
)

// flipError is a reason not to change a switch, with the status of the answer.
type flipError struct {
	status int
	text   string
}

func (e flipError) Error() string { return e.text }

// flip is a request to change one switch.
type flip struct {
	kind                  kinds.Kind
	namespace, name, part string
	// isStop requests a stop; otherwise the request is a start.
	isStop bool
	// reason and until are the reason and the end of a stop; both may be empty.
	reason, until string
}

func (s *Server) parseFlip(r *http.Request) (flip, error) {
	verb := r.PostFormValue("verb")
	if verb != "stop" && verb != "start" {
		return flip{}, errUnknownVerb
	}
	k, err := s.inventory.findKind(r.PostFormValue("kind"))
	if err != nil {
		return flip{}, err
	}
	return flip{
		kind: *k, namespace: r.PostFormValue("namespace"), name: r.PostFormValue("name"), part: r.PostFormValue("part"), isStop: verb == "stop",
		reason: strings.TrimSpace(r.PostFormValue("reason")), until: strings.TrimSpace(r.PostFormValue("until")),
	}, nil
}

// validate returns an error for an invalid request before any call of the API server.
func (f flip) validate(now time.Time) error {
	switch parts := f.kind.PartNames(); {
	case !slices.Contains(parts, f.part):
		return fmt.Errorf("expected one of the switches %s of a %s, found %q", strings.Join(parts, ", "), f.kind.GVK().Kind, f.part)
	case f.name == "" || f.namespace == "":
		return errNameless
	case f.until == "":
		return nil
	}
	_, err := stoprecord.ParseNewUntil(f.until, now.UTC())
	return err
}

// write writes the same change as the commands stop and start, with the rights of the client, and retries after a
// conflict. changed is false if there was nothing to do.
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
		if err := f.apply(after, now.Now()); err != nil {
			return err
		}
		patch := client.MergeFrom(before)
		if data, err := patch.Data(after); err != nil || string(data) == "{}" {
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
func (f flip) apply(obj client.Object, now time.Time) error {
	change, row := kinds.Change{IsStart: !f.isStop}, f.kind.FindRow(obj, f.part)
	switch {
	case f.isStop:
		change.Reason = &f.reason
		if f.until != "" {
			change.Until = &f.until
		}
	case row.Slumber != "":
		return flipError{
			http.StatusConflict,
			fmt.Sprintf("expected a manual stop, found that %s stops the object; %s starts it", stoprecord.NameSlumber(row.Slumber), row.SkipCommand()),
		}
	}
	return change.Apply(obj, f.kind.FindPart(f.part), row, now.UTC())
}
