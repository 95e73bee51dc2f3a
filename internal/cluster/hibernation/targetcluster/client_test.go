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

// kubeconfig returns a complete kubeconfig with a token, edited.
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
		"an exec plugin for credentials: refused": {func(_ *cluster, u *user, _ *config) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}, errForeign},
		"an exec plugin of a user that no context uses: refused": {func(_ *cluster, _ *user, c *config) {
			c.AuthInfos["other"] = &user{Exec: &clientcmdapi.ExecConfig{Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1"}}
		}, errForeign},
		"an authentication plugin: refused": {func(_ *cluster, u *user, _ *config) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}, errForeign},
		"a file with a token: refused":                        {func(_ *cluster, u *user, _ *config) { u.TokenFile = "/token" }, errForeign},
		"a file with a certificate: refused":                  {func(_ *cluster, u *user, _ *config) { u.ClientCertificate = "/crt" }, errForeign},
		"a file with a key: refused":                          {func(_ *cluster, u *user, _ *config) { u.ClientKey = "/key" }, errForeign},
		"a file with a CA certificate: refused":               {func(c *cluster, _ *user, _ *config) { c.CertificateAuthority = "/ca" }, errForeign},
		"plain http: refused":                                 {func(c *cluster, _ *user, _ *config) { c.Server = "http://127.0.0.1:1" }, errInsecure},
		"no scheme: refused":                                  {func(c *cluster, _ *user, _ *config) { c.Server = "127.0.0.1:1" }, errInsecure},
		"a server whose certificate is not verified: refused": {func(c *cluster, _ *user, _ *config) { c.InsecureSkipTLSVerify = true }, errInsecure},
		"a proxy: refused":                                    {func(c *cluster, _ *user, _ *config) { c.ProxyURL = "http://10.0.0.1:3128" }, errUnlistedProxy},
		"impersonation of a user: refused":                    {func(_ *cluster, u *user, _ *config) { u.Impersonate = "system:admin" }, errInsecure},
		"impersonation of a group: refused": {func(_ *cluster, u *user, _ *config) {
			u.Impersonate, u.ImpersonateGroups = "x", []string{"system:masters"}
		}, errInsecure},
		"the address of a cloud's metadata service: refused": {func(c *cluster, _ *user, _ *config) { c.Server = "https://169.254.169.254" }, httpguard.ErrAddressDenied},
		"no server: refused":                     {func(c *cluster, _ *user, _ *config) { c.Server = "" }, errUnreadable},
		"a context that does not exist: refused": {func(_ *cluster, _ *user, c *config) { c.CurrentContext = "y" }, errUnreadable},
		"a malformed CA certificate: refused":    {func(c *cluster, _ *user, _ *config) { c.CertificateAuthorityData = []byte("garbage") }, errUnreadable},
		"a certificate without its key: refused": {func(_ *cluster, u *user, _ *config) { u.ClientCertificateData = []byte("garbage") }, errUnreadable},
		"an empty kubeconfig: refused":           {func(_ *cluster, _ *user, c *config) { *c = *clientcmdapi.NewConfig() }, errUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (Dialer{}).Dial(kubeconfig(t, server, row.edit), hibernation.ServerOverride{}); !errors.Is(err, row.want) {
				t.Errorf("found %v, want %v", err, row.want)
			}
			if c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server, row.edit), hibernation.ServerOverride{}); (errors.Is(row.want, errInsecure) || errors.Is(row.want, errUnlistedProxy)) && err != nil {
				t.Errorf("found %v, want it to be allowed on request", err)
			} else if c != nil {
				c.Close()
			}
		})
	}
	for name, data := range map[string]string{
		"no text: refused": "", "no YAML: refused": "{{{", "another kind: refused": `{"apiVersion":"v1","kind":"Secret"}`,
		"a kubeconfig beyond the size limit: refused": strings.Repeat("# comment\n", 20_000),
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
		"a name that is unknown: the name api.example.com cannot be resolved":                          {&net.DNSError{Name: "api.example.com", Server: "10.0.0.1:53", IsNotFound: true}, "the name api.example.com cannot be resolved"},
		"another authority: the server's certificate is not signed by the authority in the kubeconfig": {x509.UnknownAuthorityError{}, "the server's certificate is not signed by the authority in the kubeconfig"},
		"an expired certificate: the server's certificate has expired or is not yet valid":             {x509.CertificateInvalidError{Reason: x509.Expired, Detail: "at 12:00:01"}, "the server's certificate has expired or is not yet valid"},
		"a certificate that is broken: the server's certificate is not valid":                          {x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, "the server's certificate is not valid"},
		"another name: the server's certificate is for another name":                                   {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, "the server's certificate is for another name"},
		"a closed port: the connection is refused":                                                     {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "the connection is refused"},
		"a timeout: no answer in time":                                                                 {&net.OpError{Op: "dial", Err: timeoutError{}}, "no answer in time"},
		"unauthorized":                                                                                 {k8serrors.NewUnauthorized("token expired 12:00"), "the server refuses the credentials of the kubeconfig (401)"},
		"forbidden":                                                                                    {k8serrors.NewForbidden(resource, "n", errors.New("no")), "the kubeconfig's user lacks a permission (403)"},
		"an error of the server: the server answers with 500":                                          {k8serrors.NewInternalError(errors.New("etcd is gone")), "the server answers with 500"},
		"anything else: the connection fails":                                                          {errors.New("read tcp 127.0.0.1:5->127.0.0.1:6: reset"), "the connection fails"},
		"a kubeconfig that is refused: passed on":                                                      {errForeign, errForeign.Error()},
		"an unreadable kubeconfig: passed on":                                                          {errUnreadable, errUnreadable.Error()},
		"an answer that is too large: passed on":                                                       {httpguard.ErrAnswerTooLarge, httpguard.ErrAnswerTooLarge.Error()},
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

// TestDescribeErrorOfRealConnections describes the errors of real connections.
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
		"a server that is ready: no error":                                                                               {handler: answer(http.StatusOK), trust: true},
		"a server that is not ready: the server answers with 500":                                                        {handler: answer(http.StatusInternalServerError), trust: true, want: "the server answers with 500"},
		"a server that refuses: the server refuses the credentials of the kubeconfig (401)":                              {handler: answer(http.StatusUnauthorized), trust: true, want: "the server refuses the credentials of the kubeconfig (401)"},
		"a server that redirects: the server answers with a redirect (302), which is not followed":                       {handler: answer(http.StatusFound), trust: true, want: "the server answers with a redirect (302), which is not followed"},
		"a server with a foreign certificate: the server's certificate is not signed by the authority in the kubeconfig": {handler: answer(http.StatusOK), want: "the server's certificate is not signed by the authority in the kubeconfig"},
		"a server that has gone: the connection is refused":                                                              {handler: answer(http.StatusOK), closed: true, want: "the connection is refused"},
		"a server under another name: the server's certificate is for another name":                                      {handler: answer(http.StatusOK), trust: true, server: "another.example", want: "the server's certificate is for another name"},
		"a server that closes the connection at once: the connection fails":                                              {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, trust: true, want: "the connection fails"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(row.handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // Clients refuse the connection on purpose.
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

// TestListsHaveAllPages serves every list in two pages, as an API server with many objects does.
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
