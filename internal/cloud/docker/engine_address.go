// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

// Socket is an entry of --container-engine-sockets: an engine on the manager's own machine, and the namespace of the
// clusters that may use it.
type Socket struct{ namespace, path string }

// ParseSockets parses NAMESPACE=PATH. Access to a machine's container engine means control of the machine, so there
// is no wildcard for all namespaces.
func ParseSockets(list []string) ([]Socket, error) {
	var sockets []Socket
	for _, entry := range list {
		namespace, file, ok := strings.Cut(entry, "=")
		if !ok || namespace == "" || strings.ContainsAny(namespace, "*/ ") || !path.IsAbs(file) || path.Clean(file) != file {
			return nil, fmt.Errorf("expected NAMESPACE=PATH such as fleet=/var/run/docker.sock, found %q", entry)
		}
		sockets = append(sockets, Socket{namespace, file})
	}
	return sockets, nil
}

// engineAddress is the address of an engine: the path of a socket, or a host with its port.
type engineAddress struct{ socket, host string }

const socketScheme = "unix://"

// parseAddress parses an address in the form that docker's own client accepts. It refuses unencrypted addresses, and
// addresses for which the client runs a program, such as ssh://HOST.
func parseAddress(text string) (engineAddress, error) {
	if file, ok := strings.CutPrefix(text, socketScheme); ok {
		if !path.IsAbs(file) || path.Clean(file) != file {
			return engineAddress{}, actuator.Errorf(actuator.Other, "spec.platform.containers.engine: expected a path after unix://, such as unix:///var/run/docker.sock: correct it")
		}
		return engineAddress{socket: file}, nil
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"tcp", "https"}, u.Scheme) || u.Hostname() == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return engineAddress{}, actuator.Errorf(actuator.Other, "spec.platform.containers.engine: expected tcp://HOST:PORT, which always uses TLS, or unix:///PATH: correct it")
	}
	return engineAddress{host: u.Host}, nil
}

// allowAddress refuses an engine that the target's owner is not allowed to reach. The author of a ClusterDeployment
// chooses the engine.
func (o *Options) allowAddress(address engineAddress, t actuator.Target) error {
	if address.socket != "" {
		if t.Role != nil && slices.Contains(o.Sockets, Socket{t.Role.Namespace, address.socket}) {
			return nil
		}
		return actuator.Errorf(actuator.Other, "spec.platform.containers.engine: expected a socket that --container-engine-sockets lists for the namespace, found %.100s: ask the administrator to list it, or use tcp:// with a Secret",
			address.socket)
	}
	hostname := (&url.URL{Host: address.host}).Hostname()
	if err := o.Endpoints.CheckHost(hostname); err != nil {
		return actuator.Errorf(actuator.Other, "spec.platform.containers.engine: %.100s: %s", hostname, err)
	}
	if !o.Endpoints.IsEmpty() && !o.Endpoints.Includes(hostname) {
		return actuator.Errorf(actuator.Other, "spec.platform.containers.engine: expected a server that --allow-endpoints lists, found %.100s: correct it, or ask the administrator to list the server", hostname)
	}
	return nil
}
