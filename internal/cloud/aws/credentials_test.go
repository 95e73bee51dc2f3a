// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

func TestReadCredentials(t *testing.T) {
	const profile = "[default]\naws_access_key_id = AKIA1\naws_secret_access_key = s/e+c=\n"
	for name, row := range map[string]struct {
		secret  map[string]string
		want    staticCredentials
		wantErr actuator.ErrorClass
		saying  string
	}{
		"access key ID and secret access key are accepted": {
			secret: map[string]string{accessKeyID: "AKIA1", secretAccessKey: "s"},
			want:   staticCredentials{id: "AKIA1", secret: "s"},
		},
		"all keys with trailing newlines are accepted": {
			secret: map[string]string{accessKeyID: "AKIA1\n", secretAccessKey: " s\r\n", sessionToken: "t\n", endpointURL: "http://[::1]:1\n"},
			want:   staticCredentials{id: "AKIA1", secret: "s", token: "t", endpoint: "http://[::1]:1"},
		},
		"missing Secret is CredentialsMissing": {wantErr: actuator.CredentialsMissing, saying: "the credentials Secret has no aws_access_key_id: add it"},
		"missing secret access key is CredentialsMissing": {
			secret:  map[string]string{accessKeyID: "AKIA1", secretAccessKey: "\n"},
			wantErr: actuator.CredentialsMissing, saying: "has no aws_secret_access_key: add it",
		},
		"access key ID with a line break is CredentialsInvalid": {
			secret:  map[string]string{accessKeyID: "AKIA1\nAKIA2", secretAccessKey: "s"},
			wantErr: actuator.CredentialsInvalid, saying: "aws_access_key_id in the credentials Secret must be printable ASCII",
		},
		"profile is accepted": {
			secret: map[string]string{configFile: profile},
			want:   staticCredentials{id: "AKIA1", secret: "s/e+c="},
		},
		"profile among comments and other profiles is accepted": {
			secret: map[string]string{
				configFile: "# comment\r\n; comment\n[profile other]\naws_access_key_id=WRONG\ncredential_process=/bin/sh\n" +
					"[ profile  default ] ; mine\nAWS_Access_Key_ID=AKIA1 # mine\n\taws_secret_access_key\t=\ts=\n" +
					"aws_session_token = t;t\ns3 =\n  aws_access_key_id = NESTED\nregion = x\nendpoint_url = http://a\n",
				endpointURL: "http://b",
			},
			want: staticCredentials{id: "AKIA1", secret: "s=", token: "t;t", endpoint: "http://a"},
		},
		"endpoint of the Secret applies to a profile without an endpoint": {
			secret: map[string]string{configFile: profile, endpointURL: "http://b"},
			want:   staticCredentials{id: "AKIA1", secret: "s/e+c=", endpoint: "http://b"},
		},
		"profile takes precedence over the keys of the Secret": {
			secret: map[string]string{configFile: profile, accessKeyID: "OTHER", secretAccessKey: "other"},
			want:   staticCredentials{id: "AKIA1", secret: "s/e+c="},
		},
		"profile without a secret access key is CredentialsMissing": {
			secret:  map[string]string{configFile: "[default]\naws_access_key_id = AKIA1", secretAccessKey: "not taken"},
			wantErr: actuator.CredentialsMissing, saying: "the profile [default] of aws_config in the credentials Secret has no aws_secret_access_key",
		},
		"empty aws_config is CredentialsMissing": {
			secret: map[string]string{configFile: ""}, wantErr: actuator.CredentialsMissing, saying: "has no aws_access_key_id",
		},
		"profile that runs a program is CredentialsInvalid": {
			secret:  map[string]string{configFile: profile + "credential_process = /bin/sh -c id"},
			wantErr: actuator.CredentialsInvalid, saying: "uses credential_process, but Torpor supports only static keys: set aws_access_key_id and aws_secret_access_key",
		},
		"profile that assumes a role is CredentialsInvalid": {
			secret:  map[string]string{configFile: profile + "Role_ARN = arn:aws:iam::1:role/x\nsource_profile = default"},
			wantErr: actuator.CredentialsInvalid, saying: "uses role_arn",
		},
		"setting before any section is CredentialsInvalid": {
			secret: map[string]string{configFile: "aws_access_key_id = AKIA1"}, wantErr: actuator.CredentialsInvalid, saying: "line 1 of aws_config belongs to no profile",
		},
		"line without a value is CredentialsInvalid": {
			secret: map[string]string{configFile: "[default]\n\nAKIA1"}, wantErr: actuator.CredentialsInvalid, saying: "line 3 of aws_config must be key = value",
		},
		"unclosed bracket is CredentialsInvalid": {
			secret: map[string]string{configFile: "[default\n"}, wantErr: actuator.CredentialsInvalid, saying: "line 1 of aws_config must be a section",
		},
	} {
		t.Run(name, func(t *testing.T) {
			secret := map[string][]byte{}
			for key, value := range row.secret {
				secret[key] = []byte(value)
			}
			got, err := readCredentials(secret)
			if row.wantErr == "" {
				if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(staticCredentials{})); diff != "" || err != nil {
					t.Errorf("error %v, credentials (-want +got):\n%s", err, diff)
				}
				return
			}
			if actuator.ClassOf(err) != row.wantErr || !strings.Contains(err.Error(), row.saying) {
				t.Errorf("error %v, want class %q and %q", err, row.wantErr, row.saying)
			}
		})
	}
}

func FuzzReadDefaultProfile(f *testing.F) {
	for _, seed := range []string{
		"", "[default]\na = b\n", "[profile default]\n a=\n  b = c\n", "[", "[]", "x", "=", "[default]\r\n=\r\n", "\ufeff[default]",
	} {
		f.Add(seed, "AKIA1")
	}
	f.Fuzz(func(t *testing.T, file, value string) {
		settings, err := readDefaultProfile(file)
		if err != nil {
			known, ok := errors.AsType[*actuator.Error](err)
			rest, isLine := strings.CutPrefix(known.Message, "line ")
			if !ok || !isLine || strings.Trim(rest[:strings.Index(rest, " ")], "0123456789") != "" {
				t.Errorf("error %q, want the number of a line", err)
			}
			return
		}
		for key, found := range settings {
			if key != strings.TrimSpace(strings.ToLower(key)) || found != strings.TrimSpace(found) || strings.ContainsAny(key+found, "\n=") != strings.Contains(found, "=") {
				t.Errorf("setting %q = %q is not one clean line", key, found)
			}
		}
		clean := strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/+=") == ""
		if clean && value != "" && strings.HasSuffix(file, "\n") {
			again, err := readDefaultProfile(file + "[default]\nadded=" + value + "\n")
			if err != nil || again["added"] != value {
				t.Errorf("a setting added at the end: %q and error %v, want %q", again["added"], err, value)
			}
		}
	})
}

func withCredential(t actuator.Target, key, value string) actuator.Target {
	t.Credentials = maps.Clone(t.Credentials)
	t.Credentials[key] = []byte(value)
	return t
}

func TestClientIsSharedByAccountRegionAndEndpoint(t *testing.T) {
	elsewhere, otherCluster := testTarget(), testTarget()
	elsewhere.Region, otherCluster.InfraID = "eu-west-2", "other"
	for name, row := range map[string]struct {
		target actuator.Target
		shared bool
	}{
		"the same cluster shares the client":                    {target: testTarget(), shared: true},
		"another cluster of the same account shares the client": {target: otherCluster, shared: true},
		"another region gets another client":                    {target: elsewhere},
		"another access key ID gets another client":             {target: withCredential(testTarget(), accessKeyID, "AKIAOTHER")},
		"another secret access key gets another client":         {target: withCredential(testTarget(), secretAccessKey, "other")},
		"session token gets another client":                     {target: withCredential(testTarget(), sessionToken, "token")},
		"another endpoint gets another client":                  {target: withCredential(testTarget(), endpointURL, "http://127.0.0.1:1")},
		"unrelated key in the Secret shares the client":         {target: withCredential(testTarget(), "note", "x"), shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{})
			first, err := a.clientFor(t.Context(), testTarget())
			if err != nil {
				t.Fatal(err)
			}
			other, err := a.clientFor(t.Context(), row.target)
			if err != nil || (first == other) != row.shared {
				t.Errorf("shared: %t and error %v, want %t", first == other, err, row.shared)
			}
		})
	}
}

func TestClientsFromManyGoroutines(t *testing.T) {
	a := New(Options{})
	var work sync.WaitGroup
	var found sync.Map
	for n := range 20 {
		work.Go(func() {
			c, err := a.clientFor(t.Context(), withCredential(testTarget(), accessKeyID, fmt.Sprintf("AKIA%d", n%3)))
			if err != nil {
				t.Error(err)
			}
			found.Store(c, true)
		})
	}
	work.Wait()
	n := 0
	found.Range(func(any, any) bool { n++; return true })
	if n != 3 {
		t.Errorf("%d clients for 3 accounts", n)
	}
}

func TestClientRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*actuator.Target)
		want   string
	}{
		"missing region is rejected":            {func(t *actuator.Target) { t.Region = "" }, `the region must be one such as us-east-1, found ""`},
		"host as a region is rejected":          {func(t *actuator.Target) { t.Region = "evil.example.com/" }, "the region must be one such as us-east-1"},
		"endpoint without a scheme is rejected": {func(t *actuator.Target) { *t = withCredential(*t, endpointURL, "localhost:80") }, "the endpoint must be a URL"},
		"file as an endpoint is rejected":       {func(t *actuator.Target) { *t = withCredential(*t, endpointURL, "file:///etc/passwd") }, "the endpoint must be a URL"},
		"endpoint with a password is rejected":  {func(t *actuator.Target) { *t = withCredential(*t, endpointURL, "http://u:hush@host") }, "the endpoint must be a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			target := testTarget()
			row.change(&target)
			_, err := New(Options{}).clientFor(t.Context(), target)
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}
