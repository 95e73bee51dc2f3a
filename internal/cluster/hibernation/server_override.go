// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// maxOverrideURL and maxOverrideAddress are the limits in the schema. Another project's CRD may lack them.
	maxOverrideURL, maxOverrideAddress = 2048, 45
	// maxShownOverride is the maximum length of a value in a message.
	maxShownOverride = 100
	urlField         = "spec.controlPlaneConfig.apiURLOverride"
	addressField     = "spec.controlPlaneConfig.apiServerIPOverride"
)

// ServerOverride replaces the server in a cluster's kubeconfig, for a hub that cannot reach it.
// Overrides are comparable: a connection, a probe or a job for one override is not used for another.
type ServerOverride struct {
	// URL replaces the URL of the kubeconfig. The scheme may be missing.
	URL string
	// Address is the IP address to dial. Port, TLS name and Host header still follow from the URL.
	Address string
}

// ReadServerOverride returns a cluster's override without validating it.
func ReadServerOverride(cd *hivev1.ClusterDeployment) ServerOverride {
	if config := cd.Spec.ControlPlaneConfig; config != nil {
		return ServerOverride{URL: config.APIURLOverride, Address: config.APIServerIPOverride}
	}
	return ServerOverride{}
}

// ParseURL returns the URL that replaces the kubeconfig's; nil without an override. Its errors are stable and contain
// no secrets.
func (o ServerOverride) ParseURL() (*url.URL, error) {
	if o.URL == "" {
		return nil, nil
	}
	expected := "expected " + urlField + " to be a URL such as https://api.example.com:6443, or host:port, found "
	switch {
	case len(o.URL) > maxOverrideURL:
		return nil, fmt.Errorf("%s%d characters; shorten it to %d at most", expected, len(o.URL), maxOverrideURL)
	case strings.ContainsAny(o.URL, "@?#"): // Such a value may contain a password.
		return nil, errors.New(expected + "a value with a user, a query or a fragment; remove that part")
	}
	text := o.URL
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	server, err := url.Parse(text)
	if err != nil || !isServer(server) {
		return nil, fmt.Errorf("%s%s; correct or remove it", expected, quoteShort(o.URL))
	}
	return server, nil
}

// isServer reports whether a URL uses HTTP or HTTPS, and has a valid host and either a valid port or none.
func isServer(u *url.URL) bool {
	if u.Scheme != "https" && u.Scheme != "http" {
		return false
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	host := u.Hostname()
	_, err := netip.ParseAddr(host)
	return err == nil || len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(host, ".")))) == 0
}

// ParseAddress returns the address to dial; the zero Addr without an override. Its errors are stable and contain no
// secrets.
func (o ServerOverride) ParseAddress() (netip.Addr, error) {
	if o.Address == "" {
		return netip.Addr{}, nil
	}
	expected := "expected " + addressField + " to be an IP address, found "
	if len(o.Address) > maxOverrideAddress {
		return netip.Addr{}, fmt.Errorf("%s%d characters; shorten it to %d at most", expected, len(o.Address), maxOverrideAddress)
	}
	address, err := netip.ParseAddr(o.Address)
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s%s; correct or remove it", expected, quoteShort(o.Address))
	}
	return address, nil
}

// Check returns an error if the override cannot be used.
func (o ServerOverride) Check() error {
	_, err := o.ParseURL()
	if err != nil {
		return err
	}
	_, err = o.ParseAddress()
	return err
}

// Note lists the fields that decide which server is dialled, for the message about an unresponsive server. It is
// empty without an override.
func (o ServerOverride) Note() string {
	var fields []string
	if o.URL != "" {
		fields = append(fields, urlField)
	}
	if o.Address != "" {
		fields = append(fields, addressField)
	}
	if len(fields) == 0 {
		return ""
	}
	return "; the connection uses " + strings.Join(fields, " and ") + ": correct or remove the override"
}

func quoteShort(value string) string {
	if len(value) > maxShownOverride {
		value = value[:maxShownOverride]
	}
	return strconv.Quote(value)
}
