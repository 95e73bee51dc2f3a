// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

func TestOverridesOfURLs(t *testing.T) {
	const invalid = "expected spec.controlPlaneConfig.apiURLOverride to be a URL such as https://api.example.com:6443, or host:port, found "
	for value, want := range map[string]struct{ server, refusal string }{
		"":                                          {},
		"https://api.example.com:6443":              {server: "https://api.example.com:6443"},
		"https://api.example.com":                   {server: "https://api.example.com"},
		"https://rancher.example.com/k8s/c-1":       {server: "https://rancher.example.com/k8s/c-1"},
		"api-int.cluster.example.com:6443":          {server: "https://api-int.cluster.example.com:6443"},
		"API.Example.Com.:6443":                     {server: "https://API.Example.Com.:6443"},
		"10.0.0.7:6443":                             {server: "https://10.0.0.7:6443"},
		"[fd00::7]:6443":                            {server: "https://[fd00::7]:6443"},
		"http://api.example.com:8080":               {server: "http://api.example.com:8080"}, // The dialer decides whether it accepts plain HTTP.
		"https://" + strings.Repeat("a.", 20) + "b": {server: "https://" + strings.Repeat("a.", 20) + "b"},
		"not a URL":                                 {refusal: invalid + `"not a URL"; correct or remove it`},
		"https://":                                  {refusal: invalid + `"https://"; correct or remove it`},
		"https://:6443":                             {refusal: invalid + `"https://:6443"; correct or remove it`},
		"ftp://api.example.com":                     {refusal: invalid + `"ftp://api.example.com"; correct or remove it`},
		"api.example.com:port":                      {refusal: invalid + `"api.example.com:port"; correct or remove it`},
		"api.example.com:0":                         {refusal: invalid + `"api.example.com:0"; correct or remove it`},
		"api.example.com:65536":                     {refusal: invalid + `"api.example.com:65536"; correct or remove it`},
		"api_int.example.com:6443":                  {refusal: invalid + `"api_int.example.com:6443"; correct or remove it`},
		"api.example.com\n:6443":                    {refusal: invalid + `"api.example.com\n:6443"; correct or remove it`},
		"https://admin:s3cret@api.example.com":      {refusal: invalid + "a value with a user, a query or a fragment; remove that part"},
		"https://api.example.com?token=s3cret":      {refusal: invalid + "a value with a user, a query or a fragment; remove that part"},
		"https://" + strings.Repeat("a", 300):       {refusal: invalid + `"https://` + strings.Repeat("a", 92) + `"; correct or remove it`},
		"https://" + strings.Repeat("a", 2041):      {refusal: invalid + "2049 characters; shorten it to 2048 at most"},
	} {
		server, err := ServerOverride{URL: value}.ParseURL()
		switch {
		case want.refusal != "" && (err == nil || err.Error() != want.refusal):
			t.Errorf("%.60q: expected %q, found %v", value, want.refusal, err)
		case want.refusal == "" && err != nil:
			t.Errorf("%.60q: expected %s, found %v", value, want.server, err)
		case want.server != "" && server.String() != want.server:
			t.Errorf("%.60q: expected %s, found %s", value, want.server, server)
		case want.server == "" && server != nil:
			t.Errorf("%.60q: expected no URL, found %s", value, server)
		}
		if check := (ServerOverride{URL: value}).Check(); (check == nil) != (want.refusal == "") {
			t.Errorf("%.60q: found %v of the check", value, check)
		}
	}
}

func TestOverridesOfAddresses(t *testing.T) {
	const invalid = "expected spec.controlPlaneConfig.apiServerIPOverride to be an IP address, found "
	for value, want := range map[string]string{
		"": "", "10.0.0.7": "", "fd00::7": "", "::ffff:10.0.0.7": "",
		"0000:0000:0000:0000:0000:ffff:192.168.100.228": "",
		"api.example.com":       invalid + `"api.example.com"; correct or remove it`,
		"10.0.0.7:6443":         invalid + `"10.0.0.7:6443"; correct or remove it`,
		"[fd00::7]":             invalid + `"[fd00::7]"; correct or remove it`,
		"fe80::7%eth0":          invalid + `"fe80::7%eth0"; correct or remove it`,
		" 10.0.0.7":             invalid + `" 10.0.0.7"; correct or remove it`,
		strings.Repeat("1", 46): invalid + "46 characters; shorten it to 45 at most",
	} {
		address, err := ServerOverride{Address: value}.ParseAddress()
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: expected %q, found %v", value, want, err)
		}
		if isSet := value != "" && want == ""; address.IsValid() != isSet {
			t.Errorf("%q: expected an address %t, found %s", value, isSet, address)
		}
		if check := (ServerOverride{Address: value}).Check(); (check == nil) != (want == "") {
			t.Errorf("%q: found %v of the check", value, check)
		}
	}
}

func TestOverridesAreNamed(t *testing.T) {
	cd := &hivev1.ClusterDeployment{}
	if o := ReadServerOverride(cd); o != (ServerOverride{}) || o.Note() != "" {
		t.Errorf("expected no override, found %+v: %s", o, o.Note())
	}
	cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIURLOverride: "a:1", APIServerIPOverride: "10.0.0.7"}
	const want = "; the connection uses spec.controlPlaneConfig.apiURLOverride and spec.controlPlaneConfig.apiServerIPOverride: correct or remove the override"
	if o := ReadServerOverride(cd); o != (ServerOverride{URL: "a:1", Address: "10.0.0.7"}) || o.Note() != want {
		t.Errorf("expected both fields, found %+v: %s", o, o.Note())
	}
}
