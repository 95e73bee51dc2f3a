// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

// bmcAddress is the address and the protocol of a management controller.
type bmcAddress struct {
	isIPMI   bool
	hostPort string
	// system is the machine's path in a Redfish service.
	system string
}

const (
	ipmiPort    = "623"
	redfishPort = "443"
)

// parseAddress parses the address of a listed machine. As in Metal3, redfish:// means the same as redfish+https://.
func parseAddress(text string) (bmcAddress, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bmcAddress{}, badAddress()
	}
	address := bmcAddress{system: strings.TrimSuffix(u.Path, "/")}
	port := redfishPort
	switch {
	case u.Scheme == "ipmi" && address.system == "":
		address.isIPMI, port = true, ipmiPort
	// A path is sent unchanged. Any other path could make the manager send requests to arbitrary resources of a web
	// server.
	case !slices.Contains([]string{"redfish", "redfish+https"}, u.Scheme) || !regexp.MustCompile(`^/redfish/v1/Systems/[A-Za-z0-9_-][A-Za-z0-9._-]*$`).MatchString(address.system):
		return bmcAddress{}, badAddress()
	}
	if u.Port() != "" {
		port = u.Port()
	}
	address.hostPort = net.JoinHostPort(u.Hostname(), port)
	return address, nil
}

func badAddress() error {
	return actuator.Errorf(actuator.Other, "expected redfish+https://HOST/redfish/v1/Systems/ID or ipmi://HOST in the field bmc: correct it")
}

// allowAddress refuses a controller that the target's owner is not allowed to reach. The author of a ClusterDeployment
// chooses the address.
func (o *Options) allowAddress(address bmcAddress) error {
	host, _, err := net.SplitHostPort(address.hostPort)
	if err != nil {
		return badAddress()
	}
	if err := o.Endpoints.CheckHost(host); err != nil {
		return actuator.Errorf(actuator.Other, "%s", err)
	}
	if !o.Endpoints.IsEmpty() && !o.Endpoints.Includes(host) {
		return actuator.Errorf(actuator.Other, "expected a host that --allow-endpoints lists: correct the address, or ask the administrator to list the host")
	}
	return nil
}

// isTrusted reports whether the administrator has listed the BMC. Messages of other BMCs are not shown.
func (o *Options) isTrusted(address bmcAddress) bool {
	host, _, err := net.SplitHostPort(address.hostPort)
	return err == nil && o.Endpoints.Includes(host)
}
