// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func TestAPodSpecKeepsWhatWasWritten(t *testing.T) {
	for name, row := range map[string]struct {
		written string
		rules   mocov1beta2.PodSpec
	}{
		"what rules look at": {
			`{"containers":[{"name":"mysqld","ports":[{"name":"mysql","containerPort":3306}]}],"initContainers":[{"name":"a"}],"volumes":[{"name":"b"}]}`,
			mocov1beta2.PodSpec{
				Containers:     []mocov1beta2.Container{{Name: "mysqld", Ports: []mocov1beta2.ContainerPort{{Name: "mysql", ContainerPort: 3306}}}},
				InitContainers: []mocov1beta2.Container{{Name: "a"}}, Volumes: []mocov1beta2.Volume{{Name: "b"}},
			},
		},
		"zero values that were written": {
			`{"containers":[{"name":"mysqld","command":[],"tty":false,"resources":{}}],"hostNetwork":false,"volumes":[]}`,
			mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}, Volumes: []mocov1beta2.Volume{}},
		},
		"unknown fields": {
			`{"tomorrow":{"x":1.50},"containers":[{"name":"mysqld","news":null}]}`,
			mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}},
		},
		"a name in other letters is another name": {
			`{"containers":[{"Name":"x","name":"mysqld"}],"Containers":[{"name":"y"}]}`,
			mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}},
		},
		"nothing": {`{}`, mocov1beta2.PodSpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			template := mocov1beta2.PodTemplate{Spec: mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "from before"}}}}
			if err := json.Unmarshal([]byte(`{"spec":`+row.written+`}`), &template); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.rules, template.Spec, cmpopts.IgnoreFields(mocov1beta2.PodSpec{}, "Raw")); diff != "" {
				t.Errorf("for rules (-want +got):\n%s", diff)
			}
			for what, spec := range map[string]mocov1beta2.PodSpec{"itself": template.Spec, "its copy": *template.Spec.DeepCopy()} {
				if got, err := json.Marshal(spec); err != nil || string(got) != row.written {
					t.Errorf("%s is written as %s (%v), want %s", what, got, err, row.written)
				}
			}
		})
	}
}

func TestAPodSpecOfGoIsWrittenFromItsFields(t *testing.T) {
	got, err := json.Marshal(mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}})
	if want := `{"containers":[{"name":"mysqld"}]}`; err != nil || string(got) != want {
		t.Errorf("found %s (%v), want %s", got, err, want)
	}
}

func TestAPodSpecRefusesWhatIsNone(t *testing.T) {
	var spec mocov1beta2.PodSpec
	if err := json.Unmarshal([]byte(`{"containers":"mysqld"}`), &spec); err == nil {
		t.Errorf("found %+v, want an error", spec)
	}
}
