// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

// addEgressFlags adds the flags with which an administrator limits the servers and identities that the manager uses for
// users.
func addEgressFlags(f *pflag.FlagSet, o *manager.Options) {
	f.StringSliceVar(&o.AllowEndpoints, "allow-endpoints", nil, "servers that users may choose for a cloud, for example with endpoint_url, auth_url or the address of a BMC, "+
		"as host names, patterns such as *.example.com, addresses or networks; AWS's own endpoints are always allowed; empty allows all but link-local and metadata addresses")
	f.StringVar(&o.LibvirtSocket, "libvirt-socket", "", "libvirt socket on the manager's machine, for credentials Secrets with a URI such as qemu:///system; "+
		"a user who may write such a Secret can stop and start every machine of the host; empty refuses such URIs")
	f.StringSliceVar(&o.AWSAssumeRoles, "aws-assume-roles", nil, "IAM roles that the manager assumes with its own identity for clusters that specify them, "+
		"as NAMESPACE=ARN; the namespace may be *, and the ARN a pattern such as arn:aws:iam::123456789012:role/torpor-*")
	f.StringSliceVar(&o.AzureWorkloadIdentities, "azure-workload-identities", nil, "Azure service principals that the manager uses with the token of its own ServiceAccount, "+
		"for clusters whose credentials Secrets contain them without a client secret, as NAMESPACE=TENANT_ID/CLIENT_ID; the namespace may be *")
	f.StringSliceVar(&o.ContainerEngineSockets, "container-engine-sockets", nil, "container engine sockets on the manager's machine that clusters of a namespace may use, "+
		"as NAMESPACE=PATH such as fleet=/var/run/docker.sock; a user who may write ClusterDeployments there can stop any container of the engine")
	f.StringSliceVar(&o.ImageRegistries, "image-registries", []string{"*"}, "registries from which the manager reads the digest and the exposed ports of an app's image: * for all with a public address, "+
		"none for no registry, or host names, patterns such as *.example.com, addresses and networks, with the prefix http:// for registries without TLS")
	f.StringSliceVar(&o.AllowTargetProxies, "allow-target-proxies", nil, "host names, patterns such as *.example.com, addresses or networks of the proxies "+
		"that kubeconfigs of clusters may contain in proxy-url; empty allows none")
	f.BoolVar(&o.AllowInsecureTargetClusters, "allow-insecure-target-clusters", false,
		"accept kubeconfigs of clusters with plain HTTP, insecure-skip-tls-verify, any proxy-url or impersonation")
}
