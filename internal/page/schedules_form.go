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
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// maxField limits the length of a text field of the forms.
const maxField = 512

// scheduleForm contains the fields of the form for creating a Slumber, as the user has entered them.
type scheduleForm struct {
	Name, Namespace, From, To, Zone, Selector, Reason string
	Days, Kinds                                       []string
	// YAML, Next and Week are the preview of the Slumber. They are empty before the preview.
	YAML string
	Next []changeView
	Week []dayView
}

// newScheduleForm returns the form with the most common schedule: nights and weekends.
func newScheduleForm() scheduleForm {
	return scheduleForm{From: "19:00", To: "07:00", Days: weekdays()[:5], Kinds: offeredKinds()[:1]}
}

// weekdays returns the names of the days, from Monday to Sunday.
func weekdays() []string { return []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} }

// listWaves returns the kinds of the waves, workloads first. Programs are stopped before the databases that they use, and
// clusters last.
func listWaves() [][]string {
	waves := make([][]string, kinds.MaxWaves)
	for _, k := range slices.Concat(kinds.ListWorkloads(), kinds.ListOwn()) {
		waves[k.Wave()] = append(waves[k.Wave()], k.GVK().Kind)
	}
	return waves
}

func offeredKinds() []string { return slices.Concat(listWaves()...) }

func parseScheduleForm(values url.Values) scheduleForm {
	field := func(name string) string {
		text := strings.TrimSpace(values.Get(name))
		return strings.ToValidUTF8(text[:min(len(text), maxField)], "")
	}
	f := scheduleForm{
		Name: field("name"), Namespace: field("namespace"), From: field("from"), To: field("to"), Zone: field("zone"),
		Selector: field("selector"), Reason: field("reason"),
	}
	for _, day := range weekdays() {
		if slices.Contains(values["day"], day) {
			f.Days = append(f.Days, day)
		}
	}
	for _, kind := range offeredKinds() {
		if slices.Contains(values["kind"], kind) {
			f.Kinds = append(f.Kinds, kind)
		}
	}
	return f
}

// values returns the fields as the form submits them.
func (f scheduleForm) values() url.Values {
	return url.Values{
		"name": {f.Name}, "namespace": {f.Namespace}, "from": {f.From}, "to": {f.To}, "zone": {f.Zone},
		"selector": {f.Selector}, "reason": {f.Reason}, "day": f.Days, "kind": f.Kinds,
	}
}

// daysText returns the days in the notation of the CLI: all days, a range, or a list.
func (f scheduleForm) daysText() string {
	all := weekdays()
	if len(f.Days) == len(all) {
		return "*"
	}
	first := slices.Index(all, f.Days[0])
	if n := len(f.Days); n > 2 && first+n <= len(all) && slices.Equal(all[first:first+n], f.Days) {
		return f.Days[0] + "-" + f.Days[n-1]
	}
	return strings.Join(f.Days, ",")
}

// build returns the Slumber that the form defines. The error is shown to the user.
func (f scheduleForm) build() (*torporv1alpha1.Slumber, error) {
	switch {
	case f.Name == "" || f.Namespace == "":
		return nil, errors.New("name and namespace: expected both, found an empty field")
	case len(f.Days) == 0:
		return nil, errors.New("days: expected one or more, found none")
	case len(f.Kinds) == 0:
		return nil, errors.New("kinds: expected one or more, found none")
	}
	days, err := slumber.ParseDays(f.daysText())
	if err != nil {
		return nil, fmt.Errorf("days: %w", err)
	}
	window, err := slumber.ParseSleep(f.From+"-"+f.To, days)
	if err != nil {
		return nil, fmt.Errorf("from and to: %w", err)
	}
	selector, err := metav1.ParseToLabelSelector(f.Selector)
	if err != nil {
		return nil, fmt.Errorf("labels: expected labels such as team=a, found %q", f.Selector)
	}
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name}}
	s.SetGroupVersionKind(torporv1alpha1.SlumberKind())
	s.Spec = torporv1alpha1.SlumberSpec{
		TimeZone: f.Zone, Windows: []torporv1alpha1.SlumberWindow{window}, Reason: f.Reason,
	}
	for i, all := range listWaves() {
		wave := torporv1alpha1.SlumberWave{Name: []string{"first", "second", "third"}[i]}
		for _, kind := range all {
			if slices.Contains(f.Kinds, kind) {
				wave.Targets = append(wave.Targets, torporv1alpha1.SlumberTarget{Kind: kind, Selector: *selector})
			}
		}
		if len(wave.Targets) > 0 {
			s.Spec.Waves = append(s.Spec.Waves, wave)
		}
	}
	_, err = slumber.ParseSchedule(s.Spec)
	return s, err
}

// withPreview returns the form with the YAML, the week and the next changes of a Slumber.
func (f scheduleForm) withPreview(s *torporv1alpha1.Slumber, now time.Time) (scheduleForm, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return f, fmt.Errorf("encode the Slumber: %w", err)
	}
	delete(content, "status")
	content["metadata"] = map[string]any{"namespace": s.Namespace, "name": s.Name}
	text, err := yaml.Marshal(content)
	if err != nil {
		return f, fmt.Errorf("encode the Slumber: %w", err)
	}
	schedule, err := slumber.ParseSchedule(s.Spec)
	if err != nil {
		return f, fmt.Errorf("preview the Slumber: %w", err)
	}
	f.YAML, f.Next, f.Week = string(text), listChanges(schedule, now), listDays(schedule, now)
	return f, nil
}

// createSchedule creates a Slumber with the rights of the client. A dry run stores nothing.
func createSchedule(ctx context.Context, kube client.Client, s *torporv1alpha1.Slumber, isDryRun bool) error {
	options := []client.CreateOption{client.FieldOwner(fieldManager)}
	if isDryRun {
		options = append(options, client.DryRunAll)
	}
	if err := kube.Create(ctx, s.DeepCopy(), options...); err != nil {
		return fmt.Errorf("create the Slumber: %w", err)
	}
	return nil
}

// explainRefusal returns the HTTP status and a text for an error of the API server.
func explainRefusal(err error) (status int, text string) {
	var api k8serrors.APIStatus
	if !errors.As(err, &api) {
		return describeError(err)
	}
	found := api.Status()
	switch {
	case k8serrors.IsAlreadyExists(err):
		return http.StatusConflict, "A Slumber of this name exists already in the namespace; choose another name."
	case kinds.IsKindNotServed(err):
		return http.StatusNotFound, "The API server does not serve Slumbers; install the feature slumber."
	case k8serrors.IsInvalid(err) && found.Details != nil && len(found.Details.Causes) > 0:
		var causes []string
		for _, c := range found.Details.Causes {
			why := cutBefore(c.Message, "expected ")
			if c.Field != "" && c.Field != "<nil>" { // Without a field, the cause concerns the whole object.
				why = c.Field + ": " + why
			}
			causes = append(causes, why)
		}
		return http.StatusUnprocessableEntity, "The API server refuses the Slumber: " + strings.Join(causes, "; ")
	case k8serrors.IsForbidden(err):
		for _, words := range []string{"denied request: ", "denied the request: "} {
			if _, why, isPolicy := strings.Cut(found.Message, words); isPolicy {
				return http.StatusForbidden, "A policy refuses the change: " + why
			}
		}
		return http.StatusForbidden, "You lack a permission: " + found.Message
	default:
		return describeError(err)
	}
}

// cutBefore returns the text starting at the first occurrence of words, or the whole text if it does not contain them.
func cutBefore(text, words string) string {
	if at := strings.Index(text, words); at > 0 {
		return text[at:]
	}
	return text
}
