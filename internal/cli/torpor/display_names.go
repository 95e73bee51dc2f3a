// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	// maxDisplayName is the longest display name of the CFApp schema. Another schema may allow longer ones, which are ignored.
	maxDisplayName = 250
	// maxCandidates is the most objects that an error lists.
	maxCandidates = 5
)

// showableName matches the display names that tables show and shells complete: short, and without a character that a terminal or a shell
// interprets. An object with another display name is shown by its own name.
var showableName = regexp.MustCompile(`^[-\w]{1,64}$`)

// readDisplayName returns the name that users gave an object, within its limit.
func readDisplayName(text string) string {
	if len(text) > maxDisplayName {
		return ""
	}
	return text
}

// shownName returns the display name of the object, or its name if the display name is ambiguous or cannot be shown.
func (r stopRow) shownName() string {
	if r.isNameShared || !showableName.MatchString(r.DisplayName) {
		return r.Name
	}
	return r.DisplayName
}

// ShownName returns the display name of the object, or its name if the display name is ambiguous or cannot be shown.
func (s Switch) ShownName() string { return s.shownName() }

// displayName returns the argument that names the object in commands, with its display name if possible.
func (r stopRow) displayName() string { return r.commandKind() + "/" + r.shownName() }

// objectName returns the argument that names the object in commands, by its own name, which is never ambiguous.
func (r stopRow) objectName() string { return r.commandKind() + "/" + r.Name }

func (r stopRow) commandKind() string { return cmp.Or(r.kindName, strings.ToLower(r.Kind)) }

// displayedName is the key of a display name.
type displayedName struct {
	kind            schema.GroupKind
	namespace, name string
}

// hideSharedNames marks the rows whose display name also names another object in all. Such rows are shown by the name
// of the object.
func hideSharedNames(rows, all []stopRow) {
	owners := map[displayedName]string{} // An empty value marks a name of several objects.
	note := func(name, owner string, r stopRow) {
		at := displayedName{r.groupKind, r.Namespace, name}
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
		rows[i].isNameShared = owners[displayedName{r.groupKind, r.Namespace, r.DisplayName}] == "" && r.DisplayName != ""
	}
}

// resolveName finds the object whose display name the target holds. The name of an object takes precedence over display
// names. A target whose object is not found is returned unchanged.
func (kube *kubeClient) resolveName(ctx context.Context, t target) (target, error) {
	if t.kind.displayNameOf == nil {
		return t, nil
	}
	err := kube.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, t.kind.newObject())
	if !k8serrors.IsNotFound(err) || connection.IsKindNotServed(err) {
		return t, nil // The command reads the object again and reports the error.
	}
	var found []string
	_, err = kube.eachObject(ctx, t.kind, labels.Everything(), func(obj client.Object) {
		if t.kind.displayNameOf(obj) == t.name {
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
			t.kind.gvk.Kind, t.namespace+"/"+t.name, listCandidates(t.kind.names[0], found))
	case len(found) == 1:
		t.shownName, t.name = t.name, found[0]
	}
	return t, nil
}

// listCandidates lists at most maxCandidates objects of a kind.
func listCandidates(kindName string, names []string) string {
	last := fmt.Sprintf("%d others", len(names)-maxCandidates+1)
	if len(names) <= maxCandidates {
		last = kindName + "/" + names[len(names)-1]
	}
	var first []string
	for _, name := range names[:min(len(names), maxCandidates)-1] {
		first = append(first, kindName+"/"+name)
	}
	return strings.Join(first, ", ") + " and " + last
}
