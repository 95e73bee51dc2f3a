// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	testRole   = "arn:aws:iam::123456789012:role/torpor-a"
	testTenant = "team-a"
)

// roleCloud serves STS and EC2 at one address. It issues sessions, and accepts only the newest one.
type roleCloud struct {
	t *testing.T
	// lifetime is the lifetime of sessions. refuse is the error code of the answer to AssumeRole, if set.
	lifetime time.Duration
	refuse   string
	// refused counts the refused requests.
	refused  int
	sessions int
	asked    []url.Values
}

func (c *roleCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		c.t.Error(err)
	}
	const session = `<Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials>`
	until := time.Now().Add(c.lifetime).UTC().Format(time.RFC3339)
	switch action := form.Get("Action"); action {
	case "AssumeRoleWithWebIdentity":
		c.asked = append(c.asked, form)
		_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>`+session+
			`</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, "ASIAMANAGER", "own", until)
	case "AssumeRole":
		if c.refuse != "" {
			c.refused++
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Code>%s</Code><Message>not allowed</Message></Error></ErrorResponse>`, c.refuse)
			return
		}
		if key := r.Header.Get("Authorization"); !strings.Contains(key, "Credential=ASIAMANAGER/") {
			c.t.Errorf("expected the role to be assumed with the manager's own identity, found %q", key)
		}
		c.sessions++
		c.asked = append(c.asked, form)
		_, _ = fmt.Fprintf(w, `<AssumeRoleResponse><AssumeRoleResult>`+session+`</AssumeRoleResult></AssumeRoleResponse>`,
			fmt.Sprintf("ASIAROLE%d", c.sessions), "role", until)
	default:
		if want := fmt.Sprintf("Credential=ASIAROLE%d/", c.sessions); !strings.Contains(r.Header.Get("Authorization"), want) || r.Header.Get("X-Amz-Security-Token") != "role" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `<Response><Errors><Error><Code>ExpiredToken</Code><Message>no</Message></Error></Errors></Response>`)
			return
		}
		_, _ = io.WriteString(w, `<DescribeInstancesResponse></DescribeInstancesResponse>`)
	}
}

// start returns an actuator of a manager with a web identity, and a target with the role.
func (c *roleCloud) start(t *testing.T, roles ...string) (*Actuator, actuator.Target) {
	t.Helper()
	c.t = t
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("web-identity"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_STS": server.URL, "AWS_ROLE_ARN": "arn:aws:iam::1:role/manager", "AWS_WEB_IDENTITY_TOKEN_FILE": token,
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none",
	} {
		t.Setenv(name, value)
	}
	listed, err := ParseAssumableRoles(roles)
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{Attempts: 1, Endpoint: server.URL, AssumableRoles: listed})
	return a, actuator.Target{InfraID: "sleepy", Region: "eu-west-1", Role: &actuator.Role{Name: testRole, ExternalID: "secret-handshake", Namespace: testTenant}}
}

func TestRolesAreAssumed(t *testing.T) {
	c := roleCloud{lifetime: time.Hour}
	a, target := c.start(t, testTenant+"=arn:aws:iam::123456789012:role/torpor-*")
	observe := func(want actuator.ErrorClass) {
		t.Helper()
		if _, err := a.Observe(t.Context(), target); err != nil && actuator.ClassOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("found %v, want class %q", err, want)
		}
	}
	observe("")
	observe("")
	if len(c.asked) != 2 || c.asked[0].Get("WebIdentityToken") != "web-identity" || c.asked[1].Get("RoleArn") != testRole ||
		c.asked[1].Get("ExternalId") != "secret-handshake" || c.asked[1].Get("RoleSessionName") != "torpor-"+testTenant {
		t.Errorf("expected one session of the manager and one of the role for both observations, found %v", c.asked)
	}
	c.sessions++ // The cloud has revoked the session.
	observe(actuator.CredentialsInvalid)
	observe("")
	if c.sessions != 3 {
		t.Errorf("expected another session after the first was revoked, found %d", c.sessions-1)
	}
}

func TestSessionsAreReplacedBeforeTheyEnd(t *testing.T) {
	c := roleCloud{lifetime: sessionRenewal - time.Second}
	a, target := c.start(t, "*="+testRole)
	for look := 1; look <= 3; look++ {
		if _, err := a.Observe(t.Context(), target); err != nil || c.sessions != look {
			t.Errorf("observation %d: found %v after %d sessions, want a new one for each", look, err, c.sessions)
		}
	}
}

func TestRolesThatCannotBeAssumed(t *testing.T) {
	for name, row := range map[string]struct {
		roles  []string
		refuse string
		class  actuator.ErrorClass
		want   string
	}{
		"empty list of roles is reported":                          {nil, "", actuator.Other, "expected a role that --aws-assume-roles lists for the namespace team-a"},
		"role that is listed for another namespace is reported":    {[]string{"team-b=" + testRole}, "", actuator.Other, "ask the administrator to list it"},
		"unlisted role is reported":                                {[]string{testTenant + "=arn:aws:iam::123456789012:role/x*"}, "", actuator.Other, "ask the administrator to list it"},
		"role that does not trust the manager is PermissionDenied": {[]string{testTenant + "=" + testRole}, "AccessDenied", actuator.PermissionDenied, "AssumeRole: AccessDenied: not allowed"},
		"STS that throttles is Throttled":                          {[]string{testTenant + "=" + testRole}, "Throttling", actuator.Throttled, "AssumeRole: Throttling"},
		"region in which STS is disabled is reported":              {[]string{testTenant + "=" + testRole}, "RegionDisabledException", actuator.Other, "AssumeRole: RegionDisabledException"},
	} {
		t.Run(name, func(t *testing.T) {
			c := roleCloud{lifetime: time.Hour, refuse: row.refuse}
			a, target := c.start(t, row.roles...)
			_, err := a.Observe(t.Context(), target)
			if actuator.ClassOf(err) != row.class || err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "handshake") {
				t.Errorf("found %v, want class %q and %q", err, row.class, row.want)
			}
		})
	}
	t.Run("one request to assume a refused role serves all clusters", func(t *testing.T) {
		c := roleCloud{refuse: "AccessDenied"}
		a, target := c.start(t, testTenant+"="+testRole)
		errs := a.StartAll(t.Context(), target, [][]string{{"i-a"}, {"i-b"}})
		if actuator.ClassOf(errs[0]) != actuator.PermissionDenied || actuator.ClassOf(errs[1]) != actuator.PermissionDenied || c.refused != 1 {
			t.Errorf("found %v after %d requests, want one request", errs, c.refused)
		}
	})
	t.Run("manager without credentials is reported", func(t *testing.T) {
		c := roleCloud{}
		a, target := c.start(t, testTenant+"="+testRole)
		t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/none")
		if _, err := a.Observe(t.Context(), target); actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "no AWS credentials") {
			t.Errorf("found %v, want an error about the manager's missing credentials", err)
		}
	})
}

// A tenant may put any text into a Secret, including the name of another tenant's role.
func TestSecretsWithTheNameOfARoleGetAnotherAccount(t *testing.T) {
	c := roleCloud{lifetime: time.Hour}
	a, ofRole := c.start(t, testTenant+"="+testRole)
	ofRole.Role.ExternalID = ""
	if _, err := a.Observe(t.Context(), ofRole); err != nil {
		t.Fatal(err)
	}
	account, err := a.AccountOf(t.Context(), ofRole)
	if err != nil {
		t.Fatal(err)
	}
	spelled := actuator.Target{InfraID: ofRole.InfraID, Namespace: "team-b", Region: testTenant, Credentials: map[string][]byte{
		accessKeyID: []byte("role"), secretAccessKey: []byte(testRole), endpointURL: []byte(ofRole.Region),
	}}
	if _, err := a.Observe(t.Context(), spelled); err == nil {
		t.Errorf("expected an error, found the machines of %s", testTenant)
	}
	if found, _ := a.AccountOf(t.Context(), spelled); found == account {
		t.Errorf("expected another account than that of %s", testTenant)
	}
}

func TestParseAssumableRoles(t *testing.T) {
	for _, bad := range []string{"", testRole, "=" + testRole, "team-a=", "team-a=role", "team-a=arn:[", "a=b=c"} {
		if _, err := ParseAssumableRoles([]string{bad}); err == nil {
			t.Errorf("%q: expected an error", bad)
		}
	}
}
