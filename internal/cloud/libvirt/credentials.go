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
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// Keys of the credentials Secret. The keys of certificates have the names of libvirt's own files.
const (
	uriKey         = "uri"
	authorityKey   = "cacert.pem"
	certificateKey = "clientcert.pem"
	privateKeyKey  = "clientkey.pem"
)

// transport is the transport of a connection to a daemon.
type transport string

const (
	overSocket transport = "unix"
	overTCP    transport = "tcp"
	overTLS    transport = "tls"
)

// daemon contains the settings in a credentials Secret for the daemon of a cluster's domains.
type daemon struct {
	// driver is the URI that the daemon opens, such as qemu:///system.
	driver    string
	transport transport
	// host and port are empty for a socket.
	host, port string
	tls        *tls.Config
	// account is the daemon's public name: a hash of all fields that identify it.
	account string
}

// readCredentials reads the Secret. It uses neither files nor environment variables of the manager.
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
	d.account = "libvirt/" + cloudrest.HashFields(text, string(secret[authorityKey]), string(secret[certificateKey]), string(secret[privateKeyKey]))
	return d, nil
}

// parseURI parses one of libvirt's URIs (https://libvirt.org/uri.html). A user and parameters are refused, because they
// may refer to files of the manager or disable checks.
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
		way = string(overTLS) // libvirt's own clients also default to TLS.
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
		return daemon{}, wrong("one with a transport other than tls, tcp and unix")
	case (d.transport == overSocket) != (u.Host == ""):
		return daemon{}, wrong("one with a host and the transport unix, or with neither")
	}
	if d.transport != overSocket && d.port == "" {
		d.port = map[transport]string{overTLS: "16514", overTCP: "16509"}[d.transport]
	}
	return d, nil
}

// readCertificates reads the certificate with which the client authenticates to the daemon, and the certificates of
// the authorities that sign the certificates of daemons.
func (d *daemon) readCertificates(secret map[string][]byte) error {
	for _, key := range []string{certificateKey, privateKeyKey} {
		if len(secret[key]) == 0 {
			return actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s, which identifies the client to a daemon over TLS: add it", key)
		}
	}
	own, err := tls.X509KeyPair(secret[certificateKey], secret[privateKeyKey])
	if err != nil {
		return actuator.Errorf(actuator.CredentialsInvalid, "expected a certificate under the key %s of the credentials Secret, and its private key under %s, both in PEM: correct them", certificateKey, privateKeyKey)
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
