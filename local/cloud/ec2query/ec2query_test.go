// SPDX-License-Identifier: Apache-2.0

package ec2query

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func readForm(t *testing.T, form string) Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q, err := ReadRequest(httptest.NewRecorder(), r)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestListsAreReadInTheOrderOfTheirNumbers(t *testing.T) {
	q := readForm(t, "Action=A&Id.10=j&Id.2=b&Id.1=a&Id.3=a&Id.x=no&Identity.1=no&Empty.1=")
	if got, want := q.ListValues("Id"), []string{"a", "b", "j"}; !reflect.DeepEqual(got, want) {
		t.Errorf("list %v, want %v", got, want)
	}
	if got := q.ListValues("Empty"); len(got) != 1 || got[0] != "" {
		t.Errorf("list %q, want one empty value", got)
	}
	if got := q.ListValues("Missing"); got != nil {
		t.Errorf("list %q of nothing", got)
	}
}

func TestTagsDistinguishEmptyAndMissingValues(t *testing.T) {
	q := readForm(t, "TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.2.Key=b&TagSpecification.1.Tag.2.Value=")
	want := []TagSpecification{{ResourceType: "instance", Tags: []Tag{{Key: "a"}, {Key: "b", HasValue: true}}}}
	if got := q.ListTagSpecifications(); !reflect.DeepEqual(got, want) {
		t.Errorf("tags %+v, want %+v", got, want)
	}
}

func TestARequestThatIsTooLargeIsRefused(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("A="+strings.Repeat("a", 2<<20)))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err := ReadRequest(httptest.NewRecorder(), r)
	if known, ok := errors.AsType[*Error](err); !ok || known.Code != InvalidParameterValue {
		t.Errorf("read answered %v", err)
	}
}

func TestAnswersHaveTheShapeOfEC2(t *testing.T) {
	launched := time.Date(2026, 11, 20, 10, 0, 0, 5e6, time.FixedZone("east", 3600))
	i := Instance{InstanceID: "i-1", LaunchTime: Timestamp(launched), State: InstanceState{Code: 16, Name: "running"}, Tags: NewSet([]ResourceTag{{"k", "<v>"}})}
	for name, test := range map[string]struct {
		write func(http.ResponseWriter)
		want  string
		code  int
	}{
		"an answer without content: the element return is true": {
			func(w http.ResponseWriter) { WriteAnswer(w, "CreateTags", &ReturnAnswer{Return: true}) },
			`<CreateTagsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>ID</requestId><return>true</return></CreateTagsResponse>`, 200,
		},
		"an answer with an empty list: an empty set": {
			func(w http.ResponseWriter) { WriteAnswer(w, "DescribeInstances", &DescribeInstancesAnswer{}) },
			`<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>ID</requestId><reservationSet></reservationSet></DescribeInstancesResponse>`, 200,
		},
		"an answer with a reservation: all fields are written": {
			func(w http.ResponseWriter) {
				WriteAnswer(w, "RunInstances", &RunInstancesAnswer{Reservation: Reservation{ReservationID: "r-1", OwnerID: "1", Instances: NewSet([]Instance{i})}})
			},
			`<RunInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>ID</requestId><reservationId>r-1</reservationId><ownerId>1</ownerId><groupSet></groupSet>` +
				`<instancesSet><item><instanceId>i-1</instanceId><imageId></imageId><instanceState><code>16</code><name>running</name></instanceState><privateDnsName></privateDnsName><dnsName></dnsName>` +
				`<reason></reason><amiLaunchIndex>0</amiLaunchIndex><instanceType></instanceType><launchTime>2026-11-20T09:00:00.005Z</launchTime>` +
				`<placement><availabilityZone></availabilityZone><groupName></groupName><tenancy></tenancy></placement><architecture></architecture><rootDeviceType></rootDeviceType>` +
				`<virtualizationType></virtualizationType><clientToken></clientToken><tagSet><item><key>k</key><value>&lt;v&gt;</value></item></tagSet><hypervisor></hypervisor></item></instancesSet></RunInstancesResponse>`, 200,
		},
		"an error with a code of EC2: its code and its message": {
			func(w http.ResponseWriter) { WriteError(w, NewErrorf(AuthFailure, "no %s", "way")) },
			`<Response><Errors><Error><Code>AuthFailure</Code><Message>no way</Message></Error></Errors><RequestID>ID</RequestID></Response>`, 403,
		},
		"an unexpected error: code InternalError and status 500": {
			func(w http.ResponseWriter) { WriteError(w, errors.New("disk full")) },
			`<Response><Errors><Error><Code>InternalError</Code><Message>disk full</Message></Error></Errors><RequestID>ID</RequestID></Response>`, 500,
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			test.write(recorder)
			id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
			got := id.ReplaceAllString(strings.TrimPrefix(recorder.Body.String(), "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"), "ID")
			if got != test.want || recorder.Code != test.code {
				t.Errorf("answered %d\n%s\nwant %d\n%s", recorder.Code, got, test.code, test.want)
			}
			if !id.MatchString(recorder.Header().Get("X-Amzn-Requestid")) {
				t.Errorf("headers %v", recorder.Header())
			}
		})
	}
}
