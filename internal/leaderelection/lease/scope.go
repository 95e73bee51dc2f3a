// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// maxListBytes limits the length of a list in an annotation. A longer list is not written, so the scope is unknown
	// to readers.
	maxListBytes = 32 << 10
	// maxNamed is the maximum number of list entries in a message.
	maxNamed = 20
)

// Scope describes what a manager handles.
type Scope struct {
	// Controllers are the names of the groups of controllers that run.
	Controllers []string
	// Namespaces are the only namespaces whose objects are handled; empty means all.
	Namespaces []string
	// Deployment is the Deployment of the manager's Pod; empty if unknown.
	Deployment string
	// Version is the version of the manager; empty if unknown.
	Version string
}

// scopeAnnotations returns the annotations of a scope.
func scopeAnnotations() []string {
	return []string{
		torporv1alpha1.ControllersAnnotation, torporv1alpha1.WatchNamespacesAnnotation, torporv1alpha1.ManagerDeploymentAnnotation, torporv1alpha1.ManagerVersionAnnotation,
	}
}

// showableVersion matches the versions that may be shown: short versions without control characters.
var showableVersion = regexp.MustCompile(`^[-+.()\w]{1,128}$`)

// readScope parses the scope in annotations. It returns nil unless both lists exist and are valid, because unknown data
// must not be reported as a gap.
func readScope(annotations map[string]string) *Scope {
	controllers, hasControllers := parseList(annotations, torporv1alpha1.ControllersAnnotation)
	namespaces, hasNamespaces := parseList(annotations, torporv1alpha1.WatchNamespacesAnnotation)
	if !hasControllers || !hasNamespaces || len(controllers) == 0 {
		return nil
	}
	scope := &Scope{Controllers: controllers, Namespaces: namespaces}
	if name := annotations[torporv1alpha1.ManagerDeploymentAnnotation]; len(validation.IsDNS1123Subdomain(name)) == 0 {
		scope.Deployment = name
	}
	if version := annotations[torporv1alpha1.ManagerVersionAnnotation]; showableVersion.MatchString(version) {
		scope.Version = version
	}
	return scope
}

func parseList(annotations map[string]string, name string) (list []string, isRead bool) {
	text, isThere := annotations[name]
	if !isThere || len(text) > maxListBytes {
		return nil, false
	}
	if text == "" {
		return nil, true
	}
	list = strings.Split(text, ",")
	return list, !slices.ContainsFunc(list, func(entry string) bool { return len(validation.IsDNS1123Label(entry)) > 0 })
}

// Write writes the scope to annotations. It removes the scope of an earlier holder even if the new scope is too long to
// be written.
func (s Scope) Write(l metav1.Object) {
	annotations := l.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for name, list := range map[string][]string{
		torporv1alpha1.ControllersAnnotation: s.Controllers, torporv1alpha1.WatchNamespacesAnnotation: s.Namespaces,
	} {
		if text := strings.Join(sortSet(list), ","); len(text) <= maxListBytes {
			annotations[name] = text
		} else {
			delete(annotations, name)
		}
	}
	for name, value := range map[string]string{
		torporv1alpha1.ManagerDeploymentAnnotation: s.Deployment, torporv1alpha1.ManagerVersionAnnotation: s.Version,
	} {
		if annotations[name] = value; value == "" {
			delete(annotations, name)
		}
	}
	l.SetAnnotations(annotations)
}

// Gap is the reason why no controller acts on an object.
type Gap struct {
	// Found describes what the active manager does not handle. Remedy is the next step.
	Found, Remedy string
}

func (g Gap) String() string { return g.Found + "; " + g.Remedy }

// DescribeGap returns the reason why no manager handles objects in a namespace with a group of controllers; nil if one
// does, or if this is unknown. An empty namespace means cluster-scoped objects.
func (a Acting) DescribeGap(controllers, namespace string) *Gap {
	running, ended := a.listScopes()
	if len(running) == 0 && len(ended) == 0 || slices.ContainsFunc(running, func(s *Scope) bool { return s == nil || s.handles(controllers, namespace) }) {
		return nil
	}
	for _, l := range ended {
		if l.Scope.handles(controllers, namespace) {
			return &Gap{describeEnd(a.Installation+"/"+l.Lease, l.EndedAt), endRemedy}
		}
	}
	switch {
	case !slices.ContainsFunc(running, func(s *Scope) bool { return slices.Contains(s.Controllers, controllers) }):
		return &Gap{
			fmt.Sprintf("the manager in the namespace %s runs without the controllers %s", a.Installation, controllers),
			"install the feature that contains these controllers, or add them to --controllers",
		}
	case namespace == metav1.NamespaceNone:
		return &Gap{
			fmt.Sprintf("the manager in the namespace %s watches only some namespaces, and handles no cluster-scoped objects", a.Installation),
			"run a manager without --watch-namespaces",
		}
	default:
		return &Gap{fmt.Sprintf("the manager in the namespace %s does not watch the namespace %s", a.Installation, namespace), "add the namespace to --watch-namespaces"}
	}
}

// listScopes returns the scopes of the managers that run or may run, with nil for an unknown one, and the managers
// whose Leases have expired.
func (a Acting) listScopes() (running []*Scope, ended []Leader) {
	if a.Scope != nil {
		running = append(running, a.Scope)
	}
	for _, l := range a.Leaders {
		if l.EndedAt.IsZero() {
			running = append(running, l.Scope)
		} else if l.Scope != nil {
			ended = append(ended, l)
		}
	}
	return running, ended
}

// handles reports whether the scope contains the controllers and the namespace.
func (s Scope) handles(controllers, namespace string) bool {
	return slices.Contains(s.Controllers, controllers) && (len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace))
}

// DescribeInaction returns the reason why no manager handles objects in a namespace with a group of controllers; empty
// if a manager handles them, or if this is unknown.
func (a Acting) DescribeInaction(controllers, namespace string) string {
	if gap := a.DescribeGap(controllers, namespace); gap != nil {
		return gap.String()
	}
	return a.DescribeEnd()
}

func (s Scope) handlesSame(other Scope) bool {
	return slices.Equal(sortSet(s.Controllers), sortSet(other.Controllers)) && slices.Equal(sortSet(s.Namespaces), sortSet(other.Namespaces))
}

// String lists the controllers and the namespaces, up to maxNamed of each.
func (s Scope) String() string {
	where := "all namespaces"
	if len(s.Namespaces) > 0 {
		where = "the namespaces " + nameSome(s.Namespaces)
	}
	return fmt.Sprintf("the controllers %s in %s", nameSome(s.Controllers), where)
}

func nameSome(list []string) string {
	list = sortSet(list)
	text := strings.Join(list[:min(len(list), maxNamed)], ",")
	if more := len(list) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func sortSet(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
