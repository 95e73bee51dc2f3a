// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// kubeconfig returns a complete kubeconfig with a token, changed by edit.
func kubeconfig(t *testing.T, server string, edit func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *clientcmdapi.Config)) []byte {
	t.Helper()
	cluster, user, c := &clientcmdapi.Cluster{Server: server}, &clientcmdapi.AuthInfo{Token: "t0ken"}, clientcmdapi.NewConfig()
	c.Clusters["c"], c.AuthInfos["u"], c.Contexts["x"] = cluster, user, &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if edit != nil {
		edit(cluster, user, c)
	}
	data, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDialRefuses(t *testing.T) {
	type (
		cluster = clientcmdapi.Cluster
		user    = clientcmdapi.AuthInfo
		config  = clientcmdapi.Config
	)
	const server = "https://127.0.0.1:1"
	for name, row := range map[string]struct {
		edit func(*cluster, *user, *config)
		want error
	}{
		"exec plugin for credentials is refused": {func(_ *cluster, u *user, _ *config) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}, errForeign},
		"exec plugin of a user that no context references is refused": {func(_ *cluster, _ *user, c *config) {
			c.AuthInfos["other"] = &user{Exec: &clientcmdapi.ExecConfig{Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1"}}
		}, errForeign},
		"authentication plugin is refused": {func(_ *cluster, u *user, _ *config) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}, errForeign},
		"reference to a token file is refused":              {func(_ *cluster, u *user, _ *config) { u.TokenFile = "/token" }, errForeign},
		"reference to a client certificate file is refused": {func(_ *cluster, u *user, _ *config) { u.ClientCertificate = "/crt" }, errForeign},
		"reference to a key file is refused":                {func(_ *cluster, u *user, _ *config) { u.ClientKey = "/key" }, errForeign},
		"reference to a CA certificate file is refused":     {func(c *cluster, _ *user, _ *config) { c.CertificateAuthority = "/ca" }, errForeign},
		"plain http is refused":                             {func(c *cluster, _ *user, _ *config) { c.Server = "http://127.0.0.1:1" }, errInsecure},
		"server without a scheme is refused":                {func(c *cluster, _ *user, _ *config) { c.Server = "127.0.0.1:1" }, errInsecure},
		"server with an unverified certificate is refused":  {func(c *cluster, _ *user, _ *config) { c.InsecureSkipTLSVerify = true }, errInsecure},
		"unlisted proxy is refused":                         {func(c *cluster, _ *user, _ *config) { c.ProxyURL = "http://10.0.0.1:3128" }, errUnlistedProxy},
		"impersonation of a user is refused":                {func(_ *cluster, u *user, _ *config) { u.Impersonate = "system:admin" }, errInsecure},
		"impersonation of a group is refused": {func(_ *cluster, u *user, _ *config) {
			u.Impersonate, u.ImpersonateGroups = "x", []string{"system:masters"}
		}, errInsecure},
		"address of a cloud's metadata service is refused": {func(c *cluster, _ *user, _ *config) { c.Server = "https://169.254.169.254" }, httpguard.ErrAddressDenied},
		"missing server is refused":                        {func(c *cluster, _ *user, _ *config) { c.Server = "" }, errUnreadable},
		"missing context is refused":                       {func(_ *cluster, _ *user, c *config) { c.CurrentContext = "y" }, errUnreadable},
		"malformed CA certificate is refused":              {func(c *cluster, _ *user, _ *config) { c.CertificateAuthorityData = []byte("garbage") }, errUnreadable},
		"certificate without its key is refused":           {func(_ *cluster, u *user, _ *config) { u.ClientCertificateData = []byte("garbage") }, errUnreadable},
		"empty kubeconfig is refused":                      {func(_ *cluster, _ *user, c *config) { *c = *clientcmdapi.NewConfig() }, errUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (Dialer{}).Dial(kubeconfig(t, server, row.edit), hibernation.ServerOverride{})
			if !errors.Is(err, row.want) || DescribeError(err) != row.want.Error() || !IsLasting(err) {
				t.Errorf("found %v, described as %q and lasting: %t, want %v", err, DescribeError(err), IsLasting(err), row.want)
			}
			if isOfKubeconfig := !errors.Is(row.want, httpguard.ErrAddressDenied); IsKubeconfigRefused(err) != isOfKubeconfig {
				t.Errorf("found the kubeconfig refused: %t, want %t", !isOfKubeconfig, isOfKubeconfig)
			}
			if c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server, row.edit), hibernation.ServerOverride{}); (errors.Is(row.want, errInsecure) || errors.Is(row.want, errUnlistedProxy)) && err != nil {
				t.Errorf("found %v, want it to be allowed on request", err)
			} else if c != nil {
				c.Close()
			}
		})
	}
	for name, data := range map[string]string{
		"empty text is refused": "", "text that is not YAML is refused": "{{{", "another kind is refused": `{"apiVersion":"v1","kind":"Secret"}`,
		"kubeconfig beyond the size limit is refused": strings.Repeat("# comment\n", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (Dialer{}).Dial([]byte(data), hibernation.ServerOverride{}); !errors.Is(err, errUnreadable) {
				t.Errorf("found %v, want %v", err, errUnreadable)
			}
		})
	}
}

func TestDescribeError(t *testing.T) {
	resource := schema.GroupResource{Resource: "nodes"}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"unknown host name":                   {&net.DNSError{Name: "api.example.com", Server: "10.0.0.1:53", IsNotFound: true}, "the name api.example.com cannot be resolved"},
		"certificate of an unknown authority": {x509.UnknownAuthorityError{}, "the server's certificate is not signed by the authority in the kubeconfig"},
		"expired certificate":                 {x509.CertificateInvalidError{Reason: x509.Expired, Detail: "at 12:00:01"}, "the server's certificate has expired or is not yet valid"},
		"invalid certificate":                 {x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, "the server's certificate is not valid"},
		"certificate for another name":        {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, "the server's certificate is for another name"},
		"closed port":                         {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "the connection is refused"},
		"timeout":                             {&net.OpError{Op: "dial", Err: timeoutError{}}, "no answer in time"},
		"unauthorized":                        {k8serrors.NewUnauthorized("token expired 12:00"), "the server refuses the credentials of the kubeconfig (401)"},
		"forbidden":                           {k8serrors.NewForbidden(resource, "n", errors.New("no")), "the kubeconfig's user lacks a permission (403)"},
		"server error":                        {k8serrors.NewInternalError(errors.New("etcd is gone")), "the server responds with 500"},
		"unknown error":                       {errors.New("read tcp 127.0.0.1:5->127.0.0.1:6: reset"), "the connection fails"},
		"refused kubeconfig":                  {errForeign, errForeign.Error()},
		"unreadable kubeconfig":               {errUnreadable, errUnreadable.Error()},
		"oversized answer":                    {httpguard.ErrAnswerTooLarge, httpguard.ErrAnswerTooLarge.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{row.err, fmt.Errorf("probe: %w", &url.Error{Op: "Get", URL: "https://127.0.0.1:4711/readyz", Err: row.err})} {
				if got := DescribeError(err); got != row.want {
					t.Errorf("found %q, want %q", got, row.want)
				}
			}
		})
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// TestDescribeErrorOfRealConnections makes connections that fail, and compares the descriptions of their errors.
func TestDescribeErrorOfRealConnections(t *testing.T) {
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, row := range map[string]struct {
		handler http.HandlerFunc
		closed  bool
		trust   bool
		server  string
		want    string
	}{
		"ready server":                                      {handler: answer(http.StatusOK), trust: true},
		"server that is not ready":                          {handler: answer(http.StatusInternalServerError), trust: true, want: "the server responds with 500"},
		"server that refuses the credentials":               {handler: answer(http.StatusUnauthorized), trust: true, want: "the server refuses the credentials of the kubeconfig (401)"},
		"server that redirects":                             {handler: answer(http.StatusFound), trust: true, want: "the server responds with a redirect (302), which is not followed"},
		"server with a certificate of an unknown authority": {handler: answer(http.StatusOK), want: "the server's certificate is not signed by the authority in the kubeconfig"},
		"stopped server":                                    {handler: answer(http.StatusOK), closed: true, want: "the connection is refused"},
		"server whose certificate is for another name":      {handler: answer(http.StatusOK), trust: true, server: "another.example", want: "the server's certificate is for another name"},
		"server that closes the connection at once":         {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, trust: true, want: "the connection fails"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(row.handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // The clients abort the handshake on purpose.
			server.StartTLS()
			defer server.Close()
			c, err := (Dialer{}).Dial(kubeconfig(t, server.URL, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo, _ *clientcmdapi.Config) {
				c.TLSServerName = row.server
				if row.trust {
					c.CertificateAuthorityData = encodeCertificate(server.Certificate())
				}
			}), hibernation.ServerOverride{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if row.closed {
				server.Close()
			}
			err = c.Probe(t.Context())
			switch {
			case row.want == "" && err != nil:
				t.Errorf("found %v, want an answer", err)
			case row.want != "" && (err == nil || DescribeError(err) != row.want):
				t.Errorf("found %v, want it to be described as %q", err, row.want)
			}
		})
	}
}

// TestReadVersionWithoutPermission uses a kubeconfig whose user may not read the ClusterVersion. By default, every user
// may read which groups an API server serves.
func TestReadVersionWithoutPermission(t *testing.T) {
	const group = "/apis/config.openshift.io/v1"
	for name, row := range map[string]struct {
		group       int
		isOpenShift bool
	}{
		"cluster that serves OpenShift's group is an OpenShift cluster":                      {http.StatusOK, true},
		"cluster that does not serve OpenShift's group is not an OpenShift cluster":          {http.StatusNotFound, false},
		"cluster that does not show its groups either is assumed to be an OpenShift cluster": {http.StatusForbidden, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case group:
					w.WriteHeader(row.group)
				default:
					w.WriteHeader(http.StatusForbidden)
				}
			}))
			defer server.Close()
			c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
			must(t, err)
			defer c.Close()
			if version, isOpenShift, err := c.ReadVersion(t.Context()); version != "" || isOpenShift != row.isOpenShift || err != nil {
				t.Errorf("found version %q, OpenShift: %t and %v, want OpenShift: %t", version, isOpenShift, err, row.isOpenShift)
			}
		})
	}
}

// TestListsHaveAllPages serves every list in two pages, like an API server with many objects.
func TestListsHaveAllPages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") == "" {
			http.Error(w, "expected a limit", http.StatusBadRequest)
			return
		}
		page, next := "1", "more"
		if r.URL.Query().Get("continue") == "more" {
			page, next = "2", ""
		}
		kind := map[bool][2]string{
			strings.HasSuffix(r.URL.Path, "/nodes"):                      {"NodeList", "v1"},
			strings.HasSuffix(r.URL.Path, "/leases"):                     {"LeaseList", "coordination.k8s.io/v1"},
			strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"): {"CertificateSigningRequestList", "certificates.k8s.io/v1"},
		}[true]
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", "Wed, 0"+page+" Jul 2026 12:00:00 GMT")
		if err := json.NewEncoder(w).Encode(map[string]any{
			"kind": kind[0], "apiVersion": kind[1], "metadata": map[string]any{"continue": next},
			"items": []any{map[string]any{"metadata": map[string]any{"name": "n" + page}, "spec": map[string]any{"renewTime": "2026-07-0" + page + "T12:00:00.000000Z", "signerName": certificatesv1.KubeletServingSignerName}}},
		}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nodes, err := c.ListNodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].LastSeen.Day() != 1 || nodes[1].LastSeen.Day() != 2 {
		t.Errorf("found nodes %+v (%v), want two, each with its lease", nodes, err)
	}
	requests, err := c.ListRequests(t.Context())
	if err != nil || len(requests) != 2 || requests[1].Name != "n2" {
		t.Errorf("found %d requests (%v), want two", len(requests), err)
	}
	if date := c.FirstDate(); date.Day() != 1 {
		t.Errorf("found the date %s, want that of the first answer", date)
	}
}
