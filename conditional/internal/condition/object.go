// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	listTimeout  = 10 * time.Second
	watchTimeout = 5 * time.Minute // then the server ends the watch, and the object is listed anew
	watchSlack   = 30 * time.Second
	minWatchTime = time.Second // a watch that ends sooner is a fault, lest listing becomes a busy loop
	longestPause = 30 * time.Second
)

// ObjectCondition is one object of an API server and a question about it.
type ObjectCondition struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	Like       client.Object // its type
	Key        client.ObjectKey
	Holds      func(client.Object) bool
}

// Watch reports the answer on every change until ctx ends. Each failure is Unknown, and is followed by another try
// with a new client: the kind may have got another scope or plural.
func (o ObjectCondition) Watch(ctx context.Context, report func(Status)) {
	pause := DefaultBackoff()
	pause.Cap = longestPause
	Child{Name: o.Key.String(), Observe: o.observeObject}.ObserveWithBackoff(ctx, pause, report)
}

func (o ObjectCondition) observeObject(ctx context.Context, report func(Status)) error {
	c, err := client.NewWithWatch(o.Config, client.Options{HTTPClient: o.HTTPClient, Scheme: o.Scheme})
	if err != nil {
		return fmt.Errorf("build a client: %w", err)
	}
	for ctx.Err() == nil {
		began := time.Now()
		if err := o.listAndWatch(ctx, c, report); err != nil {
			return err
		}
		// An error makes the caller back off; without it a server that ends watches at once would be listed in a loop.
		if time.Since(began) < minWatchTime && ctx.Err() == nil {
			return errors.New("the API server ended the watch at once")
		}
	}
	return nil
}

// listAndWatch lists the object, then watches it until the server ends the watch.
func (o ObjectCondition) listAndWatch(ctx context.Context, c client.WithWatch, report func(Status)) error {
	list, err := o.newListOfKind()
	if err != nil {
		return err
	}
	if err := o.listObject(ctx, c, list, report); err != nil {
		return err
	}
	// The server ends the watch earlier, unless the connection has died without an error.
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+watchSlack)
	defer cancel()
	only := o.selectObject()
	only.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: new(int64(watchTimeout / time.Second))}
	events, err := c.Watch(ctx, list, only)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if err := o.handleEvent(e, report); err != nil {
				return err
			}
		}
	}
}

func (o ObjectCondition) listObject(ctx context.Context, c client.Reader, list client.ObjectList, report func(Status)) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := c.List(ctx, list, o.selectObject()); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	found, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	if len(found) == 0 {
		report(o.absentStatus())
		return nil
	}
	return o.reportObject(found[0], report)
}

func (o ObjectCondition) handleEvent(e watch.Event, report func(Status)) error {
	switch e.Type {
	case watch.Added, watch.Modified:
		return o.reportObject(e.Object, report)
	case watch.Deleted:
		report(o.absentStatus())
	case watch.Error:
		return fmt.Errorf("watch: %w", k8serrors.FromObject(e.Object))
	case watch.Bookmark:
	}
	return nil
}

func (o ObjectCondition) reportObject(found runtime.Object, report func(Status)) error {
	obj, ok := found.(client.Object)
	if !ok {
		return fmt.Errorf("expected an object with metadata, found %T", found)
	}
	state := stateFromBool(o.Holds(obj))
	report(Status{State: state, Reason: "Object" + state.String()})
	return nil
}

func (o ObjectCondition) absentStatus() Status {
	return Status{State: False, Reason: "NotFound", Message: "the object does not exist"}
}

func (o ObjectCondition) selectObject() *client.ListOptions {
	return &client.ListOptions{Namespace: o.Key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Key.Name)}
}

// newListOfKind returns an empty list of the object's representation.
func (o ObjectCondition) newListOfKind() (client.ObjectList, error) {
	kind, err := apiutil.GVKForObject(o.Like, o.Scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", o.Like, err)
	}
	kind.Kind += "List"
	return newList(o.Like, kind, o.Scheme)
}

func newList(like client.Object, kind schema.GroupVersionKind, scheme *runtime.Scheme) (client.ObjectList, error) {
	switch like.(type) {
	case runtime.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	made, err := scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("make a list: %w", err)
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("expected a list with metadata, found %T", made)
	}
	return list, nil
}
