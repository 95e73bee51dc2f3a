// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// maxCandidates is the maximum number of objects that an error lists.
const maxCandidates = 5

// displayedName identifies a display name within its kind and namespace.
type displayedName struct {
	kind            schema.GroupKind
	namespace, name string
}

// hideSharedNames marks the rows whose display name is also the name or the display name of another object in all.
// These rows are shown by the name of the object.
func hideSharedNames(rows, all []stopRow) {
	owners := map[displayedName]string{} // An empty value marks a name that several objects have.
	note := func(name, owner string, r stopRow) {
		at := displayedName{r.GroupKind, r.Namespace, name}
		if before, isKnown := owners[at]; isKnown && before != owner {
			owner = ""
		}
		owners[at] = owner
	}
	for _, r := range all {
		note(r.Name, r.Name, r)
		if r.DisplayName != "" {
			note(r.DisplayName, r.Name, r)
		}
	}
	for i, r := range rows {
		rows[i].IsNameShared = owners[displayedName{r.GroupKind, r.Namespace, r.DisplayName}] == "" && r.DisplayName != ""
	}
}

// resolveName replaces the display name in a target with the name of the object. An object whose name matches takes
// precedence. A target whose object is not found is returned unchanged.
func (kube *kubeClient) resolveName(ctx context.Context, t target) (target, error) {
	namer, isNamed := t.kind.Definition.(kinds.DisplayNamer)
	if !isNamed {
		return t, nil
	}
	err := kube.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, t.kind.New())
	if !k8serrors.IsNotFound(err) || connection.IsKindNotServed(err) {
		return t, nil // The command reads the object again and reports the error.
	}
	var found []string
	_, err = kube.eachObject(ctx, t.kind, labels.Everything(), func(obj client.Object) {
		if namer.ReadDisplayName(obj) == t.name {
			found = append(found, obj.GetName())
		}
	})
	switch {
	case errors.Is(err, errForbidden):
		return t, nil
	case err != nil:
		return t, err
	case len(found) > 1:
		return t, exit.WrongUsage("expected one %s %q, found that %s have this display name; use one of these names",
			t.kind.GVK().Kind, t.namespace+"/"+t.name, listCandidates(t.kind.Names()[0], found))
	case len(found) == 1:
		t.shownName, t.name = t.name, found[0]
	}
	return t, nil
}

// listCandidates formats the names of objects of a kind. If there are more than maxCandidates, the last part is the
// number of the others.
func listCandidates(kindName string, names []string) string {
	last := fmt.Sprintf("%d others", len(names)-maxCandidates+1)
	if len(names) <= maxCandidates {
		last = kindName + "/" + names[len(names)-1]
	}
	var all []string
	for _, name := range names[:min(len(names), maxCandidates)-1] {
		all = append(all, kindName+"/"+name)
	}
	return kinds.JoinNames(append(all, last))
}
