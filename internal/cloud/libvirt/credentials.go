// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/rest"
)

// The keys of the credentials Secret. Those of certificates are the names of libvirt's own files.
const (
	uriKey         = "uri"
	authorityKey   = "cacert.pem"
	certificateKey = "clientcert.pem"
	privateKeyKey  = "clientkey.pem"
)

// transport is how a daemon is reached.
type transport string

const (
	overSocket transport = "unix"
	overTCP    transport = "tcp"
	overTLS    transport = "tls"
)

// daemon is what a credentials Secret says of the daemon that has a cluster's domains.
type daemon struct {
	// driver is the URI that the daemon itself opens, such as qemu:///system.
	driver    string
	transport transport
	// host and port are empty for a socket.
	host, port string
	tls        *tls.Config
	// account is the daemon's name outside: a hash of all that it is made of.
	account string
}

// readCredentials reads the Secret. Nothing of it is taken from the manager's own files or environment.
func readCredentials(secret map[string][]byte) (daemon, error) {
	text := strings.TrimSpace(string(secret[uriKey]))
	if text == "" {
		return daemon{}, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s: add it", uriKey)
	}
	d, err := parseURI(text)
	if err != nil {
		return daemon{}, err
	}
	if d.transport == overTLS {
		if err := d.readCertificates(secret); err != nil {
			return daemon{}, err
		}
	}
	d.account = "libvirt/" + rest.HashFields(text, string(secret[authorityKey]), string(secret[certificateKey]), string(secret[privateKeyKey]))
	return d, nil
}

// parseURI reads one of libvirt's URIs (https://libvirt.org/uri.html). What it may hold beside the driver, the transport and the host names
// files of the manager or switches checks off.
func parseURI(text string) (daemon, error) {
	wrong := func(found string) error {
		return actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret: expected a URI of libvirt such as qemu+tls://host.example.com/system, found %s: correct it", uriKey, found)
	}
	u, err := url.Parse(text)
	if err != nil {
		return daemon{}, wrong("none")
	}
	driver, way, isNamed := strings.Cut(u.Scheme, "+")
	if !isNamed {
		way = string(overTLS) // As libvirt's own clients take it.
		if u.Host == "" {
			way = string(overSocket)
		}
	}
	d := daemon{driver: driver + "://" + u.Path, transport: transport(way), host: u.Hostname(), port: u.Port()}
	switch {
	case !slices.Contains([]string{"qemu", "xen", "test"}, driver):
		return daemon{}, wrong("one that begins neither with qemu nor with xen")
	case !slices.Contains([]string{"/system", "/session", "/default"}, u.Path):
		return daemon{}, wrong("one that ends neither with /system nor with /session")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return daemon{}, wrong("one with a user or parameters, which are not supported")
	case !slices.Contains([]transport{overSocket, overTCP, overTLS}, d.transport):
		return daemon{}, wrong("one with another transport than tls, tcp or unix")
	case (d.transport == overSocket) != (u.Host == ""):
		return daemon{}, wrong("one with a host and the transport unix, or with neither")
	}
	if d.transport != overSocket && d.port == "" {
		d.port = map[transport]string{overTLS: "16514", overTCP: "16509"}[d.transport]
	}
	return d, nil
}

// readCertificates reads the client's certificate, by which the daemon knows it, and those of the authorities that vouch for daemons.
func (d *daemon) readCertificates(secret map[string][]byte) error {
	for _, key := range []string{certificateKey, privateKeyKey} {
		if len(secret[key]) == 0 {
			return actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s, by which a daemon knows its client over TLS: add it", key)
		}
	}
	own, err := tls.X509KeyPair(secret[certificateKey], secret[privateKeyKey])
	if err != nil {
		return actuator.Errorf(actuator.CredentialsInvalid, "expected a certificate in %s of the credentials Secret and its key in %s, both in PEM: correct them", certificateKey, privateKeyKey)
	}
	d.tls = &tls.Config{ServerName: d.host, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if text, ok := secret[authorityKey]; ok {
		d.tls.RootCAs = x509.NewCertPool()
		if !d.tls.RootCAs.AppendCertsFromPEM(text) {
			return actuator.Errorf(actuator.CredentialsInvalid, "expected certificates in PEM in %s of the credentials Secret, found none: correct it", authorityKey)
		}
	}
	return nil
}

func (d *daemon) address() string { return net.JoinHostPort(d.host, d.port) }
