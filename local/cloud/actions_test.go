// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestInstanceLifecycle(t *testing.T) {
	r := newEnv(t, Config{StartLatency: 20 * time.Millisecond, StopLatency: 30 * time.Millisecond})
	asked := time.Now()
	created := r.call("RunInstances", "ImageId", "ami-7", "InstanceType", "m5.xlarge", "MinCount", "1", "MaxCount", "1",
		"TagSpecification.1.ResourceType", "instance", "TagSpecification.1.Tag.1.Key", "Name", "TagSpecification.1.Tag.1.Value", "worker <1>")
	first := created.Instances[0]
	if first.State != "pending" || first.ReasonCode != "pending" || created.ReservationID == "" {
		t.Fatalf("created %+v", created)
	}
	up := r.awaitState(first.ID, running)
	if took := time.Since(asked); took < 20*time.Millisecond {
		t.Errorf("running after %s, before the start latency", took)
	}
	if up.StateCode != 16 || up.ReasonCode != "" || up.Reason != "" || up.Type != "m5.xlarge" || up.Image != "ami-7" || up.Zone != "us-east-1a" || up.Lifecycle != "" {
		t.Errorf("running instance %+v", up)
	}
	if up.IP != "127.77.0.1" || up.DNS != "ip-127-77-0-1.ec2.internal" || up.Tags[0] != (parsedTag{Key: "Name", Value: "worker <1>"}) {
		t.Errorf("running instance %+v", up)
	}
	changedUp := r.listInstances()[first.ID].ChangedAt

	halt := r.call("StopInstances", "InstanceId.1", first.ID).Instances[0]
	if halt.Previous != "running" || halt.Current != "stopping" {
		t.Errorf("stop answered %+v", halt)
	}
	if again := r.call("StopInstances", "InstanceId.1", first.ID).Instances[0]; again.Current == "running" {
		t.Errorf("second stop answered %+v", again)
	}
	down := r.awaitState(first.ID, stopped)
	if down.ReasonCode != "Client.UserInitiatedShutdown" || !strings.HasPrefix(down.Reason, "User initiated (") || down.IP != up.IP {
		t.Errorf("stopped instance %+v", down)
	}
	changedDown := r.listInstances()[first.ID].ChangedAt
	if changedDown.Sub(changedUp) < 30*time.Millisecond {
		t.Errorf("changed at %s and %s, closer than the stop latency", changedUp, changedDown)
	}

	begin := r.call("StartInstances", "InstanceId.1", first.ID).Instances[0]
	if begin.Previous != "stopped" || begin.Current != "pending" {
		t.Errorf("start answered %+v", begin)
	}
	if back := r.awaitState(first.ID, running); !back.Launched.After(up.Launched) {
		t.Errorf("launched %s and then %s", up.Launched, back.Launched)
	}
	end := r.call("TerminateInstances", "InstanceId.1", first.ID).Instances[0]
	if end.Previous != "running" || end.Current != "shutting-down" {
		t.Errorf("terminate answered %+v", end)
	}
	if gone := r.awaitState(first.ID, terminated); gone.IP != "" || gone.DNS != "" {
		t.Errorf("terminated instance keeps its address: %+v", gone)
	}
}

func TestStoppedInstancesTerminateAtOnceAndAreForgottenAfterAnHour(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, stopped)
	if end := r.call("TerminateInstances", "InstanceId.1", id).Instances[0]; end.Current != "terminated" || end.Previous != "stopped" {
		t.Fatalf("terminate answered %+v", end)
	}
	r.cloud.advanceAll(time.Now().Add(59 * time.Minute))
	r.describeInstance(id)
	r.cloud.advanceAll(time.Now().Add(61 * time.Minute))
	if got := r.call("DescribeInstances", "InstanceId.1", id); got.Code != "InvalidInstanceID.NotFound" {
		t.Errorf("describe answered %+v", got)
	}
	if len(r.cloud.state.Reservations) != 0 {
		t.Errorf("reservations %+v", r.cloud.state.Reservations)
	}
}

func TestAGroupReplacesAMemberThatStops(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.call("CreateTags", "ResourceId.1", id, "Tag.1.Key", joinGroupTag, "Tag.1.Value", "workers")
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, terminated)
	members := r.call("DescribeInstances", "Filter.1.Name", "tag:"+groupTag, "Filter.1.Value.1", "workers",
		"Filter.2.Name", "instance-state-name", "Filter.2.Value.1", "pending", "Filter.2.Value.2", "running")
	if len(members.Reservations) != 1 {
		t.Errorf("expected one member that replaces the first, found %+v", members.Reservations)
	}
}

func TestRefusedCallsChangeNothing(t *testing.T) {
	r := newEnv(t, Config{})
	up := r.launchInstances(1)[0]
	r.awaitState(up, running)
	gone := r.launchInstances(1)[0]
	r.call("TerminateInstances", "InstanceId.1", gone)
	r.awaitState(gone, terminated)
	spot := r.launchInstances(1, "InstanceMarketOptions.MarketType", "spot")[0]
	if got := r.awaitState(spot, running); got.Lifecycle != "spot" {
		t.Errorf("spot instance %+v", got)
	}
	const unknown, other = "i-0123456789abcdef0", "i-01234567"
	commandText := base64.StdEncoding.EncodeToString([]byte(`{"command":["/bin/true"]}`))
	for name, test := range map[string]struct {
		action string
		pairs  []string
		code   string
		status int
	}{
		"stop of two instances, one of them unknown: refused":          {"StopInstances", []string{"InstanceId.1", up, "InstanceId.2", unknown}, "InvalidInstanceID.NotFound", 400},
		"an unknown id takes precedence over a wrong state":            {"StopInstances", []string{"InstanceId.1", gone, "InstanceId.2", unknown, "InstanceId.3", other}, "InvalidInstanceID.NotFound", 400},
		"stop of two instances, one with a malformed id: refused":      {"StopInstances", []string{"InstanceId.1", up, "InstanceId.2", "i-xyz"}, "InvalidInstanceID.Malformed", 400},
		"stop of two instances, one of them terminated: refused":       {"StopInstances", []string{"InstanceId.1", up, "InstanceId.2", gone}, "IncorrectInstanceState", 400},
		"start of a terminated instance: refused":                      {"StartInstances", []string{"InstanceId.1", gone}, "IncorrectInstanceState", 400},
		"stop of a one-time spot instance: refused":                    {"StopInstances", []string{"InstanceId.1", up, "InstanceId.2", spot}, "UnsupportedOperation", 400},
		"stop with Hibernate: refused":                                 {"StopInstances", []string{"InstanceId.1", up, "Hibernate", "true"}, "UnsupportedHibernationConfiguration", 400},
		"stop without an id: refused":                                  {"StopInstances", nil, "MissingParameter", 400},
		"dry run of a stop: DryRunOperation":                           {"StopInstances", []string{"InstanceId.1", up, "DryRun", "true"}, "DryRunOperation", 412},
		"stop with a Force that is not a boolean: refused":             {"StopInstances", []string{"InstanceId.1", up, "Force", "maybe"}, "InvalidParameterValue", 400},
		"call without an action: refused":                              {"", nil, "MissingParameter", 400},
		"unknown action: refused":                                      {"RebootInstances", nil, "InvalidAction", 400},
		"RunInstances without an image: refused":                       {"RunInstances", []string{"MinCount", "1", "MaxCount", "1"}, "MissingParameter", 400},
		"RunInstances without MinCount and MaxCount: refused":          {"RunInstances", []string{"ImageId", "ami"}, "MissingParameter", 400},
		"RunInstances with MinCount 2 and MaxCount 1: refused":         {"RunInstances", []string{"ImageId", "ami", "MinCount", "2", "MaxCount", "1"}, "InvalidParameterValue", 400},
		"RunInstances with more instances than addresses: refused":     {"RunInstances", []string{"ImageId", "ami", "MinCount", "1", "MaxCount", "70000"}, "InsufficientFreeAddressesInSubnet", 400},
		"RunInstances with a count that is not a number: refused":      {"RunInstances", []string{"ImageId", "ami", "MinCount", "one", "MaxCount", "1"}, "InvalidParameterValue", 400},
		"RunInstances with an unknown market type: refused":            {"RunInstances", []string{"ImageId", "ami", "MinCount", "1", "MaxCount", "1", "InstanceMarketOptions.MarketType", "black"}, "InvalidParameterValue", 400},
		"RunInstances with a command that is not allowed: refused":     {"RunInstances", []string{"ImageId", "ami", "MinCount", "1", "MaxCount", "1", "UserData", commandText}, "InvalidParameterValue", 400},
		"RunInstances with user data that is not base64: refused":      {"RunInstances", []string{"ImageId", "ami", "MinCount", "1", "MaxCount", "1", "UserData", "{}"}, "InvalidParameterValue", 400},
		"RunInstances with tags for a volume: refused":                 {"RunInstances", []string{"ImageId", "ami", "MinCount", "1", "MaxCount", "1", "TagSpecification.1.ResourceType", "volume"}, "InvalidParameterValue", 400},
		"tag for an unknown instance: refused":                         {"CreateTags", []string{"ResourceId.1", up, "ResourceId.2", unknown, "Tag.1.Key", "a"}, "InvalidInstanceID.NotFound", 400},
		"tag for a volume: refused":                                    {"CreateTags", []string{"ResourceId.1", "vol-01234567", "Tag.1.Key", "a"}, "InvalidID", 400},
		"tag with a reserved key: refused":                             {"CreateTags", []string{"ResourceId.1", up, "Tag.1.Key", "aws:a"}, "InvalidParameterValue", 400},
		"CreateTags without tags: refused":                             {"CreateTags", []string{"ResourceId.1", up}, "MissingParameter", 400},
		"DescribeInstances of an unknown instance: refused":            {"DescribeInstances", []string{"InstanceId.1", unknown}, "InvalidInstanceID.NotFound", 400},
		"DescribeInstances with an unknown filter: refused":            {"DescribeInstances", []string{"Filter.1.Name", "colour", "Filter.1.Value.1", "red"}, "InvalidParameterValue", 400},
		"DescribeInstances with a filter without a value: refused":     {"DescribeInstances", []string{"Filter.1.Name", "tag-key"}, "MissingParameter", 400},
		"DescribeInstances with MaxResults below the minimum: refused": {"DescribeInstances", []string{"MaxResults", "4"}, "InvalidParameterValue", 400},
		"DescribeInstances with MaxResults above the maximum: refused": {"DescribeInstances", []string{"MaxResults", "1001"}, "InvalidParameterValue", 400},
		"DescribeInstances with MaxResults and instance ids: refused":  {"DescribeInstances", []string{"MaxResults", "5", "InstanceId.1", up}, "InvalidParameterCombination", 400},
		"DescribeInstances with an unknown page token: refused":        {"DescribeInstances", []string{"NextToken", "bm9uc2Vuc2U"}, "InvalidParameterValue", 400},
	} {
		t.Run(name, func(t *testing.T) {
			r := &env{t: t, url: r.url, cloud: r.cloud}
			before := r.listInstances()
			got := r.call(test.action, test.pairs...)
			if got.Code != test.code || got.status != test.status || got.Message == "" {
				t.Errorf("answered %d %s: %s; want %d %s", got.status, got.Code, got.Message, test.status, test.code)
			}
			if after := r.listInstances(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("changed from %+v to %+v", before, after)
			}
		})
	}
}

func TestStatesAreRefusedOverTheWire(t *testing.T) {
	r := newEnv(t, Config{StartLatency: time.Hour, StopLatency: time.Hour})
	id := r.launchInstances(1)[0]
	if got := r.call("StopInstances", "InstanceId.1", id); got.Code != "IncorrectInstanceState" {
		t.Errorf("stop of a pending instance answered %+v", got)
	}
	if got := r.call("StartInstances", "InstanceId.1", id).Instances[0]; got.Previous != "pending" || got.Current != "pending" {
		t.Errorf("start of a pending instance answered %+v", got)
	}
	r.cloud.advanceAll(time.Now().Add(2 * time.Hour))
	if got := r.call("StartInstances", "InstanceId.1", id).Instances[0]; got.Previous != "running" || got.Current != "running" {
		t.Errorf("start of a running instance answered %+v", got)
	}
	r.call("StopInstances", "InstanceId.1", id)
	if got := r.call("StartInstances", "InstanceId.1", id); got.Code != "IncorrectInstanceState" {
		t.Errorf("start of a stopping instance answered %+v", got)
	}
}

func TestAClientTokenMakesRunIdempotent(t *testing.T) {
	r := newEnv(t, Config{})
	run := func(image string) parsedAnswer {
		return r.call("RunInstances", "ImageId", image, "MinCount", "2", "MaxCount", "3", "ClientToken", "once")
	}
	first, second := run("ami-1"), run("ami-1")
	if len(first.Instances) != 3 || first.ReservationID != second.ReservationID || first.Instances[0].ID != second.Instances[0].ID {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if got := run("ami-2"); got.Code != "IdempotentParameterMismatch" {
		t.Errorf("other parameters answered %+v", got)
	}
	if got := len(r.listInstances()); got != 3 {
		t.Errorf("%d instances", got)
	}
}

func TestPagesAreCutAlongReservations(t *testing.T) {
	r := newEnv(t, Config{PageSize: 5})
	var want []string
	for n := range 12 {
		want = append(want, r.launchInstances(1+n%3)...)
	}
	for name, pairs := range map[string][]string{
		"call without a page size: pages of the cloud's page size":     nil,
		"call with the cloud's page size: the same pages":              {"MaxResults", "5"},
		"call with a larger page size: pages of the cloud's page size": {"MaxResults", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &env{t: t, url: r.url}
			var got []string
			var sizes []int
			for token := ""; len(sizes) == 0 || token != ""; {
				answer := r.call("DescribeInstances", append([]string{"NextToken", token}, pairs...)...)
				sizes = append(sizes, len(answer.Reservations))
				for _, reservation := range answer.Reservations {
					for _, i := range reservation.Instances {
						got = append(got, i.ID)
					}
				}
				token = answer.NextToken
			}
			if !slices.Equal(sizes, []int{5, 5, 2}) || !slices.Equal(got, want) {
				t.Errorf("pages of %v with %v, want %v", sizes, got, want)
			}
		})
	}
	token := r.call("DescribeInstances").NextToken
	if got := r.call("DescribeInstances", "NextToken", token, "Filter.1.Name", "tag-key", "Filter.1.Value.1", "a"); got.Code != "InvalidParameterValue" {
		t.Errorf("the token of another question answered %+v", got)
	}
	pairs := []string{}
	for n, id := range want {
		pairs = append(pairs, fmt.Sprintf("InstanceId.%d", n+1), id)
	}
	if got := r.call("DescribeInstances", pairs...); len(got.Reservations) != 12 || got.NextToken != "" {
		t.Errorf("named instances came as %d reservations, token %q", len(got.Reservations), got.NextToken)
	}
}

func TestFilters(t *testing.T) {
	r := newEnv(t, Config{})
	tagged := func(pairs ...string) string {
		all := []string{"TagSpecification.1.ResourceType", "instance"}
		for n := 0; n < len(pairs); n += 2 {
			prefix := fmt.Sprintf("TagSpecification.1.Tag.%d.", n/2+1)
			all = append(all, prefix+"Key", pairs[n], prefix+"Value", pairs[n+1])
		}
		return r.launchInstances(1, all...)[0]
	}
	a := tagged("Name", "worker-1", "kubernetes.io/cluster/blue", "owned")
	b := tagged("Name", "worker-20", "kubernetes.io/cluster/blue", "shared")
	d := tagged("Name", "a*b", "other", "")
	for _, id := range []string{a, b, d} {
		r.awaitState(id, running)
	}
	r.call("StopInstances", "InstanceId.1", b)
	r.awaitState(b, stopped)
	for name, test := range map[string]struct {
		filters [][]string
		want    []string
	}{
		"filter by a tag: one instance":                  {[][]string{{"tag:Name", "worker-1"}}, []string{a}},
		"tag value in different case: no instance":       {[][]string{{"tag:Name", "Worker-1"}}, nil},
		"star in a filter: any text":                     {[][]string{{"tag:Name", "worker-*"}}, []string{a, b}},
		"question mark in a filter: one character":       {[][]string{{"tag:Name", "worker-?"}}, []string{a}},
		"escaped star in a filter: the character itself": {[][]string{{"tag:Name", `a\*b`}}, []string{d}},
		"question mark: matches a dot, too":              {[][]string{{"private-ip-address", "127.77.0?1"}}, []string{a}},
		"filter with two values: either matches":         {[][]string{{"tag:kubernetes.io/cluster/blue", "owned", "shared"}}, []string{a, b}},
		"two filters: both must match":                   {[][]string{{"tag:kubernetes.io/cluster/blue", "*"}, {"instance-state-name", "running"}}, []string{a}},
		"filter by a tag key: matches":                   {[][]string{{"tag-key", "other"}}, []string{d}},
		"filter by an empty tag value: matches":          {[][]string{{"tag:other", ""}}, []string{d}},
		"filter with two states: either matches":         {[][]string{{"instance-state-name", "stopped", "stopping"}}, []string{b}},
		"unknown id in a filter: not an error":           {[][]string{{"instance-id", a, "i-0123456789abcdef0"}}, []string{a}},
		"filter by a DNS name with a star: matches":      {[][]string{{"private-dns-name", "ip-127-77-0-2.*"}}, []string{b}},
		"filter by a private IP address: matches":        {[][]string{{"private-ip-address", "127.77.0.3"}}, []string{d}},
		"filter by a missing tag: no instance":           {[][]string{{"tag:nobody", "*"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &env{t: t, url: r.url}
			var pairs []string
			for n, filter := range test.filters {
				pairs = append(pairs, fmt.Sprintf("Filter.%d.Name", n+1), filter[0])
				for m, value := range filter[1:] {
					pairs = append(pairs, fmt.Sprintf("Filter.%d.Value.%d", n+1, m+1), value)
				}
			}
			var got []string
			for _, reservation := range r.call("DescribeInstances", pairs...).Reservations {
				for _, i := range reservation.Instances {
					got = append(got, i.ID)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}

func TestTags(t *testing.T) {
	r := newEnv(t, Config{})
	ids := r.launchInstances(2)
	both := []string{"ResourceId.1", ids[0], "ResourceId.2", ids[1]}
	create := append(slices.Clone(both), "Tag.1.Key", "a", "Tag.1.Value", "1", "Tag.2.Key", "b", "Tag.2.Value", "2", "Tag.3.Key", "c")
	if got := r.call("CreateTags", create...); !got.Return {
		t.Fatalf("create answered %+v", got)
	}
	steps := []struct {
		pairs []string
		want  string
	}{
		{nil, "[a=1 b=2 c=]"},
		{[]string{"Tag.1.Key", "a", "Tag.1.Value", "other"}, "[a=1 b=2 c=]"},
		{[]string{"Tag.1.Key", "b", "Tag.1.Value", ""}, "[a=1 b=2 c=]"},
		{[]string{"Tag.1.Key", "a", "Tag.1.Value", "1"}, "[b=2 c=]"},
		{[]string{"Tag.1.Key", "b"}, "[c=]"},
		{[]string{}, "[]"},
	}
	for n, step := range steps {
		if step.pairs != nil {
			if got := r.call("DeleteTags", append(slices.Clone(both), step.pairs...)...); !got.Return {
				t.Fatalf("step %d: delete answered %+v", n, got)
			}
		}
		got := []string{}
		for _, tag := range r.call("DescribeTags", "Filter.1.Name", "resource-id", "Filter.1.Value.1", ids[1]).Tags {
			got = append(got, tag.Key+"="+tag.Value)
		}
		if fmt.Sprint(got) != step.want {
			t.Errorf("step %d: tags %v, want %s", n, got, step.want)
		}
	}
	many := []string{"ResourceId.1", ids[0]}
	for n := range 51 {
		many = append(many, fmt.Sprintf("Tag.%d.Key", n+1), fmt.Sprintf("key-%d", n))
	}
	if got := r.call("CreateTags", many...); got.Code != "TagLimitExceeded" {
		t.Errorf("51 tags answered %+v", got)
	}
}

func TestGetWorksAsPost(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	query := url.Values{"Action": {"DescribeInstances"}, "Version": {"2016-11-15"}, "InstanceId.1": {id}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/?"+query.Encode(), nil)
	expectNoError(t, err)
	request.Header.Set("Authorization", authorized)
	if got := r.send(request); got.status != http.StatusOK || got.Reservations[0].Instances[0].ID != id {
		t.Errorf("answered %+v", got)
	}
}

func TestAccessKeysAreChecked(t *testing.T) {
	open, closed := newEnv(t, Config{}), newEnv(t, Config{AccessKeys: []string{"AKIDONE", "AKIDTWO"}, Region: "eu-north-1"})
	header := func(credential string) string {
		return "AWS4-HMAC-SHA256 Credential=" + credential + ", SignedHeaders=host;x-amz-date, Signature=abc"
	}
	for name, test := range map[string]struct {
		rig           *env
		authorization string
		ok            bool
	}{
		"any key, cloud without a list of keys: allowed": {open, header("ANY/20260101/us-east-1/ec2/aws4_request"), true},
		"call without a signature: refused":              {open, "", false},
		"password instead of a signature: refused":       {open, "Basic YTpi", false},
		"signature without a key: refused":               {open, header("/20260101/us-east-1/ec2/aws4_request"), false},
		"signature without a scope: refused":             {open, header("ANY"), false},
		"signature for another region: refused":          {open, header("ANY/20260101/us-west-2/ec2/aws4_request"), false},
		"signature for another service: refused":         {open, header("ANY/20260101/us-east-1/s3/aws4_request"), false},
		"key on the cloud's list: allowed":               {closed, header("AKIDTWO/20260101/eu-north-1/ec2/aws4_request"), true},
		"key outside the cloud's list: refused":          {closed, header("AKIDSIX/20260101/eu-north-1/ec2/aws4_request"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &env{t: t, url: test.rig.url}
			got := r.callAs(test.authorization, "DescribeInstances")
			if test.ok && got.status != http.StatusOK {
				t.Errorf("answered %+v", got)
			}
			if !test.ok && (got.status != http.StatusForbidden || got.Code != "AuthFailure") {
				t.Errorf("answered %+v", got)
			}
		})
	}
}

func TestEachKeyIsThrottledByItself(t *testing.T) {
	// The rate is so low that no token is added during the test.
	r := newEnv(t, Config{RatePerSecond: 1e-6, Burst: 2})
	for n, status := range []int{200, 200, 503, 503} {
		if got := r.call("DescribeInstances"); got.status != status || (status == 503 && got.Code != "RequestLimitExceeded") {
			t.Errorf("call %d answered %+v", n, got)
		}
	}
	if got := r.callAs(strings.Replace(authorized, "AKIDTEST", "AKIDNEXT", 1), "DescribeInstances"); got.status != http.StatusOK {
		t.Errorf("another key answered %+v", got)
	}
}

func TestAKeyMayCallAgainAsTimePasses(t *testing.T) {
	now := time.Now()
	steps := []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {0, true}, {0, false}, {400 * time.Millisecond, false}, {200 * time.Millisecond, true}, {time.Hour, true}, {0, true}, {0, false}}
	r := newEnv(t, Config{RatePerSecond: 2, Burst: 2})
	for n, step := range steps {
		now = now.Add(step.after)
		if err := r.cloud.admitCaller(authorized, "DescribeInstances", now); (err == nil) != step.ok {
			t.Errorf("step %d: got %v, want admitted %t", n, err, step.ok)
		}
	}
}

func TestEC2LimitsKindsOfCalls(t *testing.T) {
	begin := time.Now()
	r := newEnv(t, Config{EC2Limits: true})
	for _, row := range []struct {
		action        string
		after         time.Duration
		calls, passed int
	}{
		{"DescribeInstances", 0, 130, 100},
		{"DescribeTags", 0, 1, 0}, // Reads share a token bucket.
		{"StopInstances", 0, 60, 50},
		{"CreateTags", 0, 1, 0}, // Most changes share one, too.
		{"StartInstances", 0, 10, 5},
		{"RunInstances", 0, 10, 5},
		{"DescribeInstances", time.Second, 30, 20},
		{"StopInstances", time.Second, 10, 5},
		{"StartInstances", time.Second, 10, 2},
	} {
		passed := 0
		for range row.calls {
			if r.cloud.admitCaller(authorized, row.action, begin.Add(row.after)) == nil {
				passed++
			}
		}
		if passed != row.passed {
			t.Errorf("%s after %s: %d of %d calls passed, want %d", row.action, row.after, passed, row.calls, row.passed)
		}
	}
}

func TestReadLagHidesRecentChanges(t *testing.T) {
	const lag = 3 * time.Second
	r := newEnv(t, Config{ReadLag: lag, StopLatency: time.Hour})
	id := r.launchInstances(1)[0]
	shown := func(after time.Duration) string {
		r.cloud.mu.Lock()
		defer r.cloud.mu.Unlock()
		i, isVisible := r.cloud.readInstance(id, time.Now().Add(after))
		if !isVisible {
			return ""
		}
		return string(i.State)
	}
	if got := shown(0); got != "" {
		t.Errorf("a new instance is shown as %q at once", got)
	}
	eventually(t, "the instance is there", func() bool { return shown(0) == "running" })
	if got := r.call("StopInstances", "InstanceId.1", id).Instances[0]; got.Current != "stopping" {
		t.Errorf("the stop answered %+v", got)
	}
	if now, later := shown(0), shown(lag); now != "running" || later != "stopping" {
		t.Errorf("stopped: shown as %s, and %s later as %s", now, lag, later)
	}
}

func TestAStopThatIsProtectedFailsTheBatch(t *testing.T) {
	r := newEnv(t, Config{})
	free, protected := r.launchInstances(1)[0], r.launchInstances(1, "DisableApiStop", "true")[0]
	r.awaitState(free, running)
	r.awaitState(protected, running)
	both := []string{"InstanceId.1", free, "InstanceId.2", protected}
	if got := r.call("StopInstances", both...); got.Code != "OperationNotPermitted" || !strings.Contains(got.Message, protected) {
		t.Errorf("answered %+v", got)
	}
	if got := r.describeInstance(free); got.State != "running" {
		t.Errorf("the other instance is %s", got.State)
	}
	if got := r.call("ModifyInstanceAttribute", "InstanceId", protected, "DisableApiStop.Value", "false"); !got.Return {
		t.Errorf("answered %+v", got)
	}
	r.call("StopInstances", both...)
	r.awaitState(protected, stopped)
}

func TestInstanceTypeCapacityIsLimited(t *testing.T) {
	r := newEnv(t, Config{})
	ids := r.launchInstances(2, "InstanceType", "m5.large")
	r.awaitState(ids[0], running)
	r.callAdmin(http.MethodPost, "capacity", map[string]any{"type": "m5.large", "running": 2}, nil)
	run := []string{"ImageId", "ami-1", "MinCount", "1", "MaxCount", "1", "InstanceType", "m5.large"}
	if got := r.call("RunInstances", run...); got.Code != "InsufficientInstanceCapacity" {
		t.Errorf("a third one answered %+v", got)
	}
	r.launchInstances(1, "InstanceType", "c5.large")
	r.call("StopInstances", "InstanceId.1", ids[0])
	r.awaitState(ids[0], stopped)
	r.callAdmin(http.MethodPost, "capacity", map[string]any{"type": "m5.large", "running": 1}, nil)
	if got := r.call("StartInstances", "InstanceId.1", ids[0]); got.Code != "InsufficientInstanceCapacity" {
		t.Errorf("the start answered %+v", got)
	}
	r.callAdmin(http.MethodPost, "capacity", map[string]any{"type": "m5.large"}, nil)
	r.call("StartInstances", "InstanceId.1", ids[0])
	r.awaitState(ids[0], running)
}

// TestReplacedMachineIsListedWithItsSuccessor expects both machines to have the cluster's tag for about an hour, as
// in EC2.
func TestReplacedMachineIsListedWithItsSuccessor(t *testing.T) {
	r := newEnv(t, Config{})
	tags := []string{"TagSpecification.1.ResourceType", "instance", "TagSpecification.1.Tag.1.Key", "kubernetes.io/cluster/blue", "TagSpecification.1.Tag.1.Value", "owned"}
	old := r.launchInstances(1, tags...)[0]
	r.awaitState(old, running)
	r.call("TerminateInstances", "InstanceId.1", old)
	r.awaitState(old, terminated)
	successor := r.launchInstances(1, tags...)[0]
	r.awaitState(successor, running)
	listed := func() (ids []string) {
		for _, reservation := range r.call("DescribeInstances", "Filter.1.Name", "tag-key", "Filter.1.Value.1", "kubernetes.io/cluster/blue").Reservations {
			ids = append(ids, reservation.Instances[0].ID)
		}
		return ids
	}
	if got := listed(); !slices.Equal(got, []string{old, successor}) {
		t.Errorf("found %v", got)
	}
	r.cloud.advanceAll(time.Now().Add(2 * time.Hour))
	if got := listed(); !slices.Equal(got, []string{successor}) {
		t.Errorf("after two hours found %v", got)
	}
}

// TestSixtyThousandInstances counts bytes and examined instances, not seconds.
func TestSixtyThousandInstances(t *testing.T) {
	const clusters, machines = 10_000, 6
	r := newEnv(t, Config{StopLatency: time.Hour})
	var made stateChange
	r.cloud.mu.Lock()
	for n := range clusters {
		pattern := instance{Type: "m5.large", Tags: map[string]string{fmt.Sprintf("kubernetes.io/cluster/c%d", n): "owned"}}
		created, err := r.cloud.createInstances(pattern, machines, time.Now())
		expectNoError(t, err)
		made = stateChange{Reservation: r.cloud.state.newReservation(reservation{ID: newID("r-")}, created), Instances: created}
		r.cloud.applyChange(made, time.Now()) // The next saved change writes all of them to the disk.
	}
	r.cloud.store.mustRewrite = true
	r.cloud.mu.Unlock()
	r.awaitState(made.Instances[0].ID, running)
	r.call("CreateTags", "ResourceId.1", made.Instances[0].ID, "Tag.1.Key", "a", "Tag.1.Value", "b")

	before := r.cloud.store.addedBytes
	r.call("StopInstances", "InstanceId.1", made.Instances[0].ID)
	if written := r.cloud.store.addedBytes - before; written > 2_000 {
		t.Errorf("a change to one of %d instances writes %d bytes", clusters*machines, written)
	}
	cluster := filterCriteria{{name: "tag-key", texts: map[string]bool{"kubernetes.io/cluster/c77": true}}}
	r.cloud.mu.Lock()
	found, _ := r.cloud.state.candidates(nil, cluster)
	r.cloud.mu.Unlock()
	if len(found) != machines {
		t.Errorf("to find %d instances %d are looked at", machines, len(found))
	}
	pages, shown := 0, 0
	for token := ""; pages == 0 || token != ""; pages++ {
		answer := r.call("DescribeInstances", "Filter.1.Name", "tag-key", "Filter.1.Value.1", "kubernetes.io/cluster/*", "NextToken", token)
		for _, reservation := range answer.Reservations {
			shown += len(reservation.Instances)
		}
		token = answer.NextToken
	}
	if pages != clusters/1000 || shown != clusters*machines {
		t.Errorf("found %d instances on %d pages", shown, pages)
	}
	many := []string{"Filter.1.Name", "tag-key"}
	for n := range 201 {
		many = append(many, fmt.Sprintf("Filter.1.Value.%d", n+1), fmt.Sprintf("kubernetes.io/cluster/c%d", n))
	}
	if got := r.call("DescribeInstances", many...); got.Code != "FilterLimitExceeded" {
		t.Errorf("201 values answered %+v", got)
	}
}

// FuzzWildcard expects an escaped value to match only itself, and an escaped value with a trailing star to match any
// longer value, too.
func FuzzWildcard(f *testing.F) {
	for _, seed := range []string{"", "a*b?c", `\`, "a.b[", "line\nline", `\\*`} {
		f.Add(seed)
	}
	escape := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`)
	f.Fuzz(func(t *testing.T, value string) {
		compileWildcard(value)
		if !utf8.ValidString(value) {
			return
		}
		exact := compileWildcard(escape.Replace(value))
		if !exact.MatchString(value) || exact.MatchString(value+"x") || exact.MatchString("x"+value) {
			t.Errorf("%q escaped is %s", value, exact)
		}
		if !compileWildcard(escape.Replace(value) + "*").MatchString(value + "\nmore") {
			t.Errorf("%q with a star does not match a longer value", value)
		}
	})
}
